#!/usr/bin/env python3
"""Draws the scenes that the models in assets/models were trained for, with questions for `triptych eval`.

    tools/make_scenes.py OUT                  OUT/scenes and OUT/scenes-mixed, 400 pictures and 2,400 questions each, and for
                                              `convert --calibrate` OUT/calibration and OUT/calibration-mixed, 128 pictures each
    tools/make_scenes.py --tree               assets/eval/scenes and scenes-mixed: the first 50 and 16 pictures of those
    tools/make_scenes.py --answers            tests/data/scenes_answers.json: what Hugging Face transformers makes
                                              assets/models/scenes-llava answer to the questions of assets/eval/scenes

A scene is its seed: one to four shapes in cells of a 3 x 3 grid. None of these seeds was used for training. With Pillow 13.0.0
the files are the same to the byte; whether another release draws the same is said in the end. Needs pillow; --answers what
tools/make_golden.py needs.
"""
import argparse
import io
import json
import math
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "assets/eval"
SQUARE = [(112, 112)]
MIXED = [(112, 112), (140, 84), (84, 140), (168, 112)]
# name: (first seed, pictures, of which in the tree, sizes in turn)
FOLDERS = {"scenes": (10_100_000, 400, 50, SQUARE), "scenes-mixed": (10_110_000, 400, 16, MIXED),
           "calibration": (10_120_000, 128, 0, SQUARE), "calibration-mixed": (10_130_000, 128, 0, MIXED)}
QUESTIONS_OF_A_PICTURE = 6

SHAPES = ["circle", "square", "triangle", "star", "cross", "ring"]
COLORS = {"red": (214, 40, 40), "green": (40, 160, 70), "blue": (40, 80, 210), "yellow": (240, 205, 40), "purple": (140, 60, 180),
          "orange": (240, 130, 30), "cyan": (50, 195, 205), "white": (245, 245, 245)}
PLACES = [" ".join(words).strip() if any(words) else "center" for words in
          [(row, column) for row in ("top", "", "bottom") for column in ("left", "", "right")]]
NUMBERS = ["zero", "one", "two", "three", "four"]
BACKGROUNDS = [(24, 26, 32), (52, 48, 44), (88, 92, 96), (30, 44, 60)]
OVERSAMPLING = 4


class Scene:
    """What a seed gives. The order in which random numbers are taken is part of the data: it must not change."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.background = self.random.choice(BACKGROUNDS)
        self.objects = [self._object(cell) for cell in sorted(self.random.sample(range(9), self.random.randint(1, 4)))]

    def _object(self, cell):
        draw = self.random
        return {"cell": cell, "shape": draw.choice(SHAPES), "color": draw.choice(list(COLORS)),
                "size": draw.choice(["small", "large"]), "shift": (draw.uniform(-0.12, 0.12), draw.uniform(-0.12, 0.12))}

    def picture(self, width, height):
        from PIL import Image, ImageDraw
        image = Image.new("RGB", (width * OVERSAMPLING, height * OVERSAMPLING), self.background)
        pen = ImageDraw.Draw(image)
        cell_width, cell_height = image.width / 3, image.height / 3
        for thing in self.objects:
            row, column = divmod(thing["cell"], 3)
            radius = min(cell_width, cell_height) * (0.42 if thing["size"] == "large" else 0.24)
            room = min(cell_width, cell_height) / 2 - radius
            x = (column + 0.5) * cell_width + thing["shift"][0] * 2 * room
            y = (row + 0.5) * cell_height + thing["shift"][1] * 2 * room
            draw_shape(pen, thing["shape"], COLORS[thing["color"]], x, y, radius, self.background)
        return image.resize((width, height), Image.LANCZOS).quantize(64)

    def caption(self):
        texts = [f"a {thing['size']} {thing['color']} {thing['shape']} at the {PLACES[thing['cell']]}" for thing in self.objects]
        return " and ".join(([", ".join(texts[:-1])] if len(texts) > 1 else []) + texts[-1:])

    def questions(self):
        """Pairs of question and answer, the caption first. Called once: it goes on with the random numbers."""
        draw = self.random
        shapes = [thing["shape"] for thing in self.objects]
        colors = [thing["color"] for thing in self.objects]
        pairs = []
        for thing in self.objects:
            shape, color, place = thing["shape"], thing["color"], PLACES[thing["cell"]]
            if shapes.count(shape) == 1:
                pairs += [(f"What color is the {shape}?", color), (f"Where is the {shape}?", place),
                          (f"Is the {shape} small or large?", thing["size"])]
            if colors.count(color) == 1:
                pairs.append((f"Which shape is {color}?", shape))
            pairs += [(f"Which shape is at the {place}?", shape), (f"Which color is at the {place}?", color),
                      (f"Is there a {color} {shape}?", "yes")]
        for _ in self.objects:
            color, shape = draw.choice(list(COLORS)), draw.choice(SHAPES)
            if draw.random() < 0.5:  # a near miss: the color of one with the shape of another
                color, shape = draw.choice(colors), draw.choice(shapes)
            if (color, shape) not in zip(colors, shapes):
                pairs.append((f"Is there a {color} {shape}?", "no"))
        pairs.append(("How many shapes are there?", NUMBERS[len(self.objects)]))
        color = draw.choice(colors)
        pairs.append((f"How many shapes are {color}?", NUMBERS[colors.count(color)]))
        draw.shuffle(pairs)
        return [("Describe the image.", self.caption())] + pairs


def draw_shape(pen, shape, color, x, y, radius, background):
    def box(half_width, half_height):
        return [x - half_width, y - half_height, x + half_width, y + half_height]
    if shape in ("circle", "ring"):
        pen.ellipse(box(radius, radius), fill=color)
        if shape == "ring":
            pen.ellipse(box(radius * 0.55, radius * 0.55), fill=background)
    elif shape == "square":
        pen.rectangle(box(radius * 0.86, radius * 0.86), fill=color)
    elif shape == "cross":
        pen.rectangle(box(radius, radius * 0.34), fill=color)
        pen.rectangle(box(radius * 0.34, radius), fill=color)
    elif shape == "triangle":
        bottom = y + radius * 0.8
        pen.polygon([(x, y - radius), (x - radius * 0.95, bottom), (x + radius * 0.95, bottom)], fill=color)
    else:
        angles = [-math.pi / 2 + k * math.pi / 5 for k in range(10)]
        reach = [radius if k % 2 == 0 else radius * 0.42 for k in range(10)]
        pen.polygon([(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(reach, angles)], fill=color)


def write_folder(name, out, n_pictures):
    """How many pictures differ from those of the tree."""
    first_seed, _, n_kept, sizes = FOLDERS[name]
    out.mkdir(parents=True, exist_ok=True)
    n_different = 0
    with open(out / "questions.jsonl", "w", encoding="utf-8") as lines:
        for i in range(n_pictures):
            scene = Scene(first_seed + i)
            file = io.BytesIO()
            scene.picture(*sizes[i % len(sizes)]).save(file, "PNG", optimize=True)
            known = TREE / name / f"{i:04d}.png"
            if i < n_kept and known.exists():
                n_different += known.read_bytes() != file.getvalue()
            (out / f"{i:04d}.png").write_bytes(file.getvalue())
            for k, (question, answer) in enumerate(scene.questions()[:QUESTIONS_OF_A_PICTURE]):
                entry = {"id": f"{i:04d}-{k}", "image": f"{i:04d}.png", "question": question, "answer": answer}
                lines.write(json.dumps(entry) + "\n")
    return n_different


def write_answers():
    import torch
    import transformers
    import make_golden
    torch.set_num_threads(1)  # the model is small
    directory = ROOT / "assets/models/scenes-llava"
    model, processor = make_golden.open_model(directory)
    stop = model.generation_config.eos_token_id
    answers = []
    for line in (TREE / "scenes/questions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        parts = [{"image": entry["image"]}, {"text": entry["question"]}]
        _, inputs = make_golden.make_inputs(processor, parts, TREE / "scenes")
        ids = model.generate(**inputs, max_new_tokens=64, do_sample=False, num_beams=1, eos_token_id=stop, pad_token_id=0)
        text = processor.tokenizer.decode(ids[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True)
        answers.append({"id": entry["id"], "answer": text.strip()})
    report = {"reference": f"transformers {transformers.__version__}, float32, eager, greedy", "model": "scenes-llava",
              "answers": answers}
    (ROOT / "tests/data/scenes_answers.json").write_text(json.dumps(report, indent=0) + "\n")
    right = [json.loads(line)["answer"] for line in (TREE / "scenes/questions.jsonl").read_text().splitlines()]
    print(f"{sum(a['answer'] == b for a, b in zip(answers, right))} of {len(right)} right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", type=pathlib.Path, help="directory to write")
    parser.add_argument("--tree", action="store_true", help="write the pictures of assets/eval instead")
    parser.add_argument("--answers", action="store_true", help="write tests/data/scenes_answers.json instead")
    arguments = parser.parse_args()
    if (arguments.out is None) != (arguments.tree or arguments.answers):
        parser.error("one of OUT, --tree and --answers is wanted")
    if arguments.answers:
        write_answers()
        return
    for name, (_, n_pictures, n_kept, _) in FOLDERS.items():
        if arguments.tree and n_kept == 0:
            continue
        folder = (TREE if arguments.tree else arguments.out) / name
        n_different = write_folder(name, folder, n_kept if arguments.tree else n_pictures)
        print(f"{folder}: {n_kept if arguments.tree else n_pictures} pictures")
        if n_different > 0:
            sys.exit(f"{n_different} of the first {n_kept} differ from assets/eval/{name}: this Pillow draws otherwise")


if __name__ == "__main__":
    main()
