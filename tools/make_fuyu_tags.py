#!/usr/bin/env python3
"""Writes tests/data/fuyu_tags: a small Fuyu tokenizer, and what Hugging Face transformers makes of boxes and points.

Needs: pip install torch transformers pillow tokenizers  (made with transformers 5.24).

    tools/make_fuyu_tags.py [--out DIR]

Files
  tokenizer.json, tokenizer_config.json   Unigram with byte pieces, Latin letters and the numbers 0 to 1100
  cases.json
    prompts   picture size, text, ids of the text. Coordinates by scale_bbox_to_transformed_image and
              scale_point_to_transformed_image with the image processor's own scale factor. Each number is looked up in the
              vocabulary and the text around a tag is tokenized by itself, as in the releases of 2023; today's release joins
              the numbers to one text, which cannot be read back ("1020304" is many boxes).
    numbers   picture size, [coordinate, number of the token]
    answers   picture size, ids, text by post_process_box_coordinates and decode
    back      picture size, [number of the token, coordinate]
"""
import argparse
import json
import pathlib
import random

import tokenizers
import torch
import transformers
from PIL import Image
from transformers.models.fuyu import processing_fuyu as reference
from transformers.models.fuyu.image_processing_pil_fuyu import FuyuImageProcessorPil

SIZES = [(64, 48), (1, 1), (1920, 1080), (1921, 1080), (1366, 768), (2048, 1365), (3840, 2160), (3000, 1999), (800, 3000),
         (5000, 700), (1080, 1920), (4096, 4096)]
TEXTS = ["What is in <box>10, 20, 30, 40</box>?\n", "<box>0, 0, 11, 13</box>", "<point>5, 7</point> What is at it?\n",
         "a <point>1, 3</point> b <box>2, 4, 6, 8</box><point> 9,10 </point>c", "<box> 1.5, 2.25 ,31,  40.0 </box> d",
         "no tags here\n", "<box>23, 47, 47, 47</box>\n"]


def make_tokenizer(out):
    pieces = ["<unk>", "<s>", "|ENDOFTEXT|", "|SPEAKER|", "|NEWLINE|"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = [(piece, 0.0) for piece in pieces]
    letters = "\u2581abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,?:;()'\"-<>/!"
    vocabulary += [(letter, -6.0) for letter in letters]
    vocabulary += [(word, -4.0) for word in ["\u2581\u2581", "\u2581What", "\u2581is", "\u2581in", "\u2581at", "\u2581it"]]
    vocabulary += [(str(number), -5.0 - 0.001 * number) for number in range(1101)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(),
         tokenizers.decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "|ENDOFTEXT|"])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "|ENDOFTEXT|", "pad_token": "<unk>", "unk_token": "<unk>",
         "clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=1) + "\n")
    return transformers.PreTrainedTokenizerFast.from_pretrained(out)


def scale_of(processor, size):
    return processor(Image.new("RGB", size), return_tensors="pt")["image_scale_factors"][0][0].item()


def prompt_ids(tokenizer, text, scale):
    vocabulary = tokenizer.get_vocab()
    ids = []
    marks = {4: ("<0x00>", "<0x01>"), 2: ("<0x02>", "<0x03>")}
    replaced = reference._replace_string_repr_with_token_tags(text)
    for part, is_tag in reference._segment_prompt_into_text_token_conversions(replaced):
        if is_tag:
            values = [float(value.strip()) for value in part.split(",")]
            scaled = (reference.scale_bbox_to_transformed_image if len(values) == 4
                      else reference.scale_point_to_transformed_image)(*values, scale)
            ids += [vocabulary[marks[len(values)][0]]] + [vocabulary[str(number)] for number in scaled]
            ids += [vocabulary[marks[len(values)][1]]]
        else:
            ids += tokenizer(part, add_special_tokens=False).input_ids
    return ids


def numbers_of(rng, scale, size):
    values = [0, 1, 2, 3] + [rng.randrange(0, 2 * max(size)) / 2 for _ in range(60)]
    values = [value for value in values if value <= max(size)]
    return [[value, int(reference.scale_point_to_transformed_image(value, 0, scale)[0])] for value in values]


def answers_of(rng, processor, tokenizer, size):
    vocabulary = tokenizer.get_vocab()
    limit = torch.tensor([[size[1], size[0]]])

    def number():
        return vocabulary[str(rng.randrange(0, 961))]

    def decode(ids):
        outputs = processor.post_process_box_coordinates([torch.tensor(ids)], target_sizes=limit)
        return tokenizer.decode(outputs[0].tolist())

    word, other = vocabulary["\u2581at"], vocabulary["\u2581it"]
    box = lambda: [vocabulary["<0x00>"], number(), number(), number(), number(), vocabulary["<0x01>"]]
    point = lambda: [vocabulary["<0x02>"], number(), number(), vocabulary["<0x03>"]]
    cases = [[word] + box(), [word] + point() + [other], [word, other] + box() + box() + [other] + point(), [word, other]]
    return [{"size": size, "ids": ids, "text": decode(ids)} for ids in cases]


def back_of(processor, tokenizer, size):
    vocabulary = tokenizer.get_vocab()
    limit = torch.tensor([[size[1], size[0]]])
    out = []
    for value in [0, 1, 2] + list(range(5, 960, 9)) + [960]:
        ids = [vocabulary["\u2581at"], vocabulary["<0x02>"], vocabulary[str(value)], vocabulary["0"], vocabulary["<0x03>"]]
        text = tokenizer.decode(processor.post_process_box_coordinates([torch.tensor(ids)], target_sizes=limit)[0].tolist())
        out.append([value, int(text.split("<point>")[1].split(",")[0])])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "tests/data/fuyu_tags")
    out = parser.parse_args().out
    rng = random.Random(4)
    tokenizer = make_tokenizer(out)
    images = FuyuImageProcessorPil()
    processor = reference.FuyuProcessor(images, tokenizer)
    cases = {"prompts": [], "numbers": [], "answers": [], "back": []}
    for size in SIZES:
        scale = scale_of(images, size)
        cases["prompts"] += [{"size": size, "text": text, "ids": prompt_ids(tokenizer, text, scale)} for text in TEXTS]
        cases["numbers"].append({"size": size, "pairs": numbers_of(rng, scale, size)})
        cases["answers"] += answers_of(rng, processor, tokenizer, size)
        cases["back"].append({"size": size, "pairs": back_of(processor, tokenizer, size)})
    lines = [f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(case) for case in group) + "]"
             for name, group in cases.items()]
    (out / "cases.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
