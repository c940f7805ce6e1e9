#!/usr/bin/env python3
"""Makes reference values of a checkpoint with Hugging Face transformers, for `triptych verify`.

    tools/make_golden.py MODEL OUT                                     four standard cases with pictures it draws
    tools/make_golden.py MODEL OUT --case one photo.jpg "What is it?"  cases of your own: a name, pictures and texts
    tools/make_golden.py MODEL OUT --video clip 2 0.png 1.png "What?"  a video: a name, frames a second, frames and a text
    triptych verify MODEL --golden OUT

Everything runs in float32 on the processor, one conversation at a time, without padding, greedily. OUT receives golden.json
(prompt, token ids, greedy ids and their margins), copies of the pictures, and per case a safetensors file: input.* (what the
processor made), logits [T, V], step_logits [n, V] and, in the first --taps cases, tap.<module name> (outputs of embeddings,
blocks, the parts of the first block, projector, norms).

Needs: pip install torch transformers pillow safetensors. A model of B parameters takes 4 B bytes of memory.
"""
import argparse
import json
import pathlib
import re
import shutil
import sys

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".ppm", ".tiff")
# Modules whose outputs are kept: stages of tower, projector and decoder, every block, and the parts of first blocks.
STAGES = re.compile(r"(^|\.)(patch_embed|patch_embedding|embeddings|pre_layrnorm|post_layernorm|vision_embed_tokens|merger|"
                    r"deepstack_merger_list\.\d+|multi_modal_projector|language_projection|qformer|final_layernorm|"
                    r"language_model\.norm|model\.norm)$")
BLOCKS = re.compile(r"(layers|blocks|layer)\.\d+$")
FIRST_BLOCK = re.compile(r"(layers|blocks)\.0\.(self_attn|attn|mlp|input_layernorm|norm1)$")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="checkpoint directory")
    parser.add_argument("out", type=pathlib.Path, help="directory to write")
    parser.add_argument("--case", nargs="+", action="append", metavar="NAME PART", default=[],
                        help="a case: its name, then pictures (files) and texts in order; may be repeated")
    parser.add_argument("--video", nargs="+", action="append", metavar="NAME FPS PART", default=[],
                        help="a case with one video: its name, frames a second, then the frames (files) and texts")
    parser.add_argument("--without-pixels", action="store_true", help="leave the processor's pixels out of the files")
    parser.add_argument("--steps", type=int, default=12, help="greedy tokens, the stop token ignored (default 12)")
    parser.add_argument("--to-stop", action="store_true", help="instead run to the stop token, --steps at most")
    parser.add_argument("--taps", type=int, default=2, help="record modules in the first N cases (default 2)")
    return parser.parse_args()


def standard_cases(out):
    """Pictures with shapes, shades and noise, so that no two pixels are alike."""
    import numpy
    from PIL import Image, ImageDraw
    names = []
    for k, size in enumerate([(224, 224), (301, 177), (120, 260)]):
        picture = Image.new("RGB", size, (40 + 60 * k, 90, 160 - 50 * k))
        draw = ImageDraw.Draw(picture)
        draw.ellipse((size[0] * 0.1, size[1] * 0.2, size[0] * 0.5, size[1] * 0.7), fill=(220, 60, 40 + 90 * k))
        draw.rectangle((size[0] * 0.6, size[1] * 0.5, size[0] * 0.9, size[1] * 0.9), fill=(30, 200, 80))
        random = numpy.random.default_rng(k)
        noisy = numpy.asarray(picture).astype(int) + random.integers(-12, 13, (size[1], size[0], 3))
        name = out / f"picture{k}.png"
        Image.fromarray(noisy.clip(0, 255).astype("uint8")).save(name)
        names.append(str(name))
    return [["one_image", names[0], "What is in the picture?"], ["wide_image", names[1], "Describe the image."],
            ["two_images", names[0], names[2], "Compare the two pictures."], ["text_only", "What is a triptych?"]]


def take_parts(parts, out):
    """[{"image": name} or {"text": text}], pictures copied to `out`."""
    result = []
    for part in parts:
        path = pathlib.Path(part)
        if part.lower().endswith(PICTURE_ENDINGS) and path.is_file():
            if path.resolve().parent != out.resolve():
                shutil.copy(path, out / path.name)
            result.append({"image": path.name})
        else:
            result.append({"text": part})
    return result


def open_model(directory):
    import torch
    import transformers
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = getattr(transformers, config.architectures[0])
    model = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    # Pillow's image processor where there are several: its numbers do not depend on the machine.
    try:
        processor = transformers.AutoProcessor.from_pretrained(directory, backend="pil")
    except TypeError:
        processor = transformers.AutoProcessor.from_pretrained(directory, use_fast=False)
    except ImportError:  # of videos there is only one
        processor = transformers.AutoProcessor.from_pretrained(directory)
        processor.image_processor = transformers.AutoImageProcessor.from_pretrained(directory, backend="pil")
    complete_processor(processor, config)
    return model, processor


def complete_processor(processor, config):
    """What older directories leave to the processor's user: how many tokens a picture takes."""
    vision = getattr(config, "vision_config", None)
    if hasattr(processor, "patch_size") and processor.patch_size is None and vision is not None:
        processor.patch_size = vision.patch_size
        processor.vision_feature_select_strategy = config.vision_feature_select_strategy
        processor.num_additional_image_tokens = 1 if "clip" in vision.model_type else 0  # the class token
    if hasattr(processor, "num_query_tokens") and processor.num_query_tokens is None:
        processor.num_query_tokens = config.num_query_tokens


def make_video_inputs(processor, parts, fps, out):
    """All pictures as frames of one video, none left out."""
    import numpy
    import torch
    from PIL import Image
    frames = [numpy.asarray(Image.open(out / part["image"]).convert("RGB")) for part in parts if "image" in part]
    texts = [{"type": "text", "text": part["text"]} for part in parts if "text" in part]
    prompt = processor.apply_chat_template([{"role": "user", "content": [{"type": "video"}, *texts]}], tokenize=False,
                                           add_generation_prompt=True)
    n = len(frames)
    metadata = {"fps": fps, "frames_indices": list(range(n)), "total_num_frames": n, "duration": n / fps}
    inputs = dict(processor(text=[prompt], videos=[torch.from_numpy(numpy.stack(frames)).permute(0, 3, 1, 2)],
                            return_tensors="pt", videos_kwargs={"do_sample_frames": False, "fps": fps,
                                                                "video_metadata": [metadata]}))
    inputs.pop("video_metadata", None)
    return prompt, inputs


def make_inputs(processor, parts, out):
    from PIL import Image
    pictures = [Image.open(out / part["image"]).convert("RGB") for part in parts if "image" in part]
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"} if "image" in part else {"type": "text", "text": part["text"]} for part in parts]
        prompt = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False,
                                               add_generation_prompt=True)
    else:
        prompt = "".join(part.get("text", "") for part in parts)
    arguments = {"text": prompt, "return_tensors": "pt"}
    if pictures:
        arguments["images"] = pictures
    return prompt, dict(processor(**arguments))


def record_taps(model, store):
    """Hooks that keep the first output of every module of interest."""
    def keep(name):
        def hook(_module, _inputs, output):
            value = getattr(output, "last_hidden_state", output)
            value = value[0] if isinstance(value, (tuple, list)) else value
            if hasattr(value, "detach"):
                store.setdefault("tap." + name, value.detach().float().clone())
        return hook
    return [module.register_forward_hook(keep(name)) for name, module in model.named_modules()
            if STAGES.search(name) or BLOCKS.search(name) or FIRST_BLOCK.search(name)]


def run_case(model, processor, parts, prompt, inputs, arguments, with_taps, fps=None):
    import torch
    store = {}
    for name, value in inputs.items():
        if torch.is_tensor(value) and not (getattr(arguments, "without_pixels", False) and name.startswith("pixel_values")):
            store["input." + name] = value.long() if value.dtype == torch.bool else value.clone()
    hooks = record_taps(model, store) if with_taps else []
    stop = model.generation_config.eos_token_id if arguments.to_stop else None
    with torch.no_grad():
        store["logits"] = model(**inputs).logits[0].float()
        for hook in hooks:
            hook.remove()
        model.generation_config.eos_token_id = stop
        done = model.generate(**inputs, max_new_tokens=arguments.steps, do_sample=False, num_beams=1,
                              repetition_penalty=1.0, eos_token_id=stop, pad_token_id=0, output_logits=True,
                              return_dict_in_generate=True)
    store["step_logits"] = torch.cat([step.float() for step in done.logits])
    ids = done.sequences[0].tolist()[-len(done.logits):]
    best = torch.topk(store["step_logits"], 2).values
    case = {"parts": parts, "prompt": prompt, "input_ids": inputs["input_ids"][0].tolist(), "generated_ids": ids,
            "margins": [round(float(a - b), 4) for a, b in best],
            "text": processor.tokenizer.decode(ids, skip_special_tokens=True)}
    if fps is not None:
        case |= {"video": True, "fps": fps}
    return case, store


def main():
    arguments = parse_arguments()
    import transformers
    from safetensors.torch import save_file
    arguments.out.mkdir(parents=True, exist_ok=True)
    model, processor = open_model(arguments.model)
    report = {"reference": f"transformers {transformers.__version__}, float32, eager", "cases": []}
    cases = [(name, None, parts) for name, *parts in arguments.case]
    cases += [(name, fps, parts) for name, *(fps, *parts) in arguments.video]
    for name, fps, parts in cases or [(name, None, parts) for name, *parts in standard_cases(arguments.out)]:
        if not parts or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            sys.exit(f"--case {name}: a name of letters and digits, then at least one part")
        parts = take_parts(parts, arguments.out)
        fps = None if fps is None else float(fps)
        made = make_inputs(processor, parts, arguments.out) if fps is None else make_video_inputs(processor, parts, fps, arguments.out)
        case, store = run_case(model, processor, parts, *made, arguments, len(report["cases"]) < arguments.taps, fps)
        save_file({key: value.contiguous() for key, value in store.items()}, str(arguments.out / f"{name}.safetensors"))
        report["cases"].append({"name": name, **case})
        print(f"{name}: {len(case['input_ids'])} tokens, {sum(key.startswith('tap.') for key in store)} taps, "
              f"answer {case['text']!r}", flush=True)
    (arguments.out / "golden.json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
