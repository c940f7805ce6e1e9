#!/usr/bin/env python3
"""Makes the small random checkpoints below tests/data/golden anew, with their reference values: weights and numbers.

    tools/make_test_models.py [FAMILY...]                  those that Hugging Face transformers computes, or some of them
    tools/make_test_models.py qwen_vl --code DIRECTORY     DIRECTORY: the published modeling code of Qwen-VL-Chat
    tools/make_llava_variants.py                           tests/data/golden/llava_variants

Configuration, processor, tokenizer, pictures and the cases of golden.json (names and parts) are read from the directory and
stay; model.safetensors, the files of the cases and the numbers in golden.json are written. Prompts and token ids must come out
as golden.json has them. Weights are random, drawn from a seed that is the family's name, and stored as bfloat16 to keep the
files small; the reference computes with them in float32. What no test reads is left out: masks, and for the Qwen families
pixels, which the tests of image processors compare.

Needs torch, transformers, pillow, safetensors (the files came from 2.14.1, 5.24.0, 13.0.0, 0.8.0) and, for qwen_vl, torchvision
and einops.
"""
import argparse
import importlib
import json
import math
import os
import pathlib
import sys
import types

import make_golden

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/data/golden"
FAMILIES = ("llava", "llava_next", "qwen2_vl", "qwen2_5_vl", "fuyu", "blip2", "instructblip")
UNREAD = {"attention_mask", "qformer_attention_mask", "mm_token_type_ids", "pixel_values_videos"}
STEPS = 12
QWEN_VL_STEPS = 16
N_QWEN_VL_IDS = 653  # that have tokens: the published generation chooses among these
VIDEO_LIMITS = dict(shortest_edge=28 * 28 * 4, longest_edge=28 * 28 * 400)  # the frames need no resizing


def draw_weights(model, seed):
    """Scales that give lively activations and clear winners: what a wrong weight does shows in the logits."""
    import torch
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=source)
            name = name.lower()
            if weight.dim() < 2:
                weight.copy_(1 + noise * 0.2 if name.endswith("weight") else noise * 0.1)
                continue
            scale = 1.2 / math.sqrt(weight[0].numel())
            if "embed_tokens" in name or "word_embeddings" in name:
                scale = 0.25 if tied else 1.0
            elif "dense_4h_to_h" in name:  # behind a squared ReLU, whose values are large
                scale = 0.25 / math.sqrt(weight[0].numel())
            elif any(part in name for part in ("position", "class_embedding", "query_tokens", "image_newline")):
                scale = 0.5
            elif "lm_head" in name:
                scale = 2.5 / math.sqrt(weight.shape[-1])
            weight.copy_(noise * scale)


def write_weights(family, directory):
    """As published: transformers writes the names of its own modules for CLIP towers, published files have a level more."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    config = transformers.AutoConfig.from_pretrained(directory)
    model = getattr(transformers, config.architectures[0])(config).float().eval()
    draw_weights(model, sum(map(ord, family)))
    kept = {name: (directory / name).read_text() for name in ("config.json", "generation_config.json")}
    file = directory / "model.safetensors"
    model.to(torch.bfloat16).save_pretrained(directory)
    for name, text in kept.items():
        (directory / name).write_text(text)
    if (directory / "preprocessor_config.json").exists():  # a directory of the published form
        save_file({name.replace("vision_tower.", "vision_tower.vision_model.", 1): value
                   for name, value in load_file(file).items()}, file, metadata={"format": "pt"})


def mend_fuyu():
    """transformers 5.24.0 hands Fuyu's image processor on Pillow a tensor where it wants an array."""
    import numpy
    import torch
    import transformers
    kind = transformers.FuyuImageProcessorPil
    cut = kind.patchify_image

    def patchify(self, image, patch_size=None):
        image = numpy.asarray(image)
        patches = cut(self, image if image.ndim == 4 else image[None], patch_size)
        return torch.from_numpy(numpy.ascontiguousarray(patches))
    kind.patchify_image = patchify


def video_inputs(processor, case, directory):
    import numpy
    import torch
    from PIL import Image
    *names, text = case["parts"]
    frames = numpy.stack([numpy.asarray(Image.open(directory / name).convert("RGB")) for name in names])
    content = [{"type": "video"}, {"type": "text", "text": text}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False,
                                           add_generation_prompt=True)
    inputs = dict(processor(text=[prompt], videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)], return_tensors="pt",
                            videos_kwargs=dict(do_sample_frames=False, size=VIDEO_LIMITS, fps=case["fps"])))
    if "second_per_grid_ts" in inputs:  # two frames are one step of the grid
        inputs["second_per_grid_ts"] = torch.tensor([2.0 / case["fps"]])
    return prompt, inputs


def same(directory, case, what, found):
    if found != case[what]:
        sys.exit(f"{directory}: case {case['name']}: {what} is {found!r}, golden.json has {case[what]!r}")


def write_references(family, directory):
    import torch
    from safetensors.torch import save_file
    model, processor = make_golden.open_model(directory)
    golden = json.loads((directory / "golden.json").read_text())
    run_options = argparse.Namespace(steps=STEPS, to_stop=False)
    for number, case in enumerate(golden["cases"]):
        parts = [{"image" if part.endswith(".png") else "text": part} for part in case["parts"]]
        prompt, inputs = (video_inputs(processor, case, directory) if case.get("video") else
                          make_golden.make_inputs(processor, parts, directory))
        # Outputs of modules once, since further cases go through the same, and not of the four tiles of llava_next,
        # whose modules are those of llava.
        with_taps = number == 0 and family != "llava_next"
        result, store = make_golden.run_case(model, processor, parts, prompt, inputs, run_options, with_taps)
        same(directory, case, "prompt", result["prompt"])
        same(directory, case, "input_ids", result["input_ids"])
        case.update({name: result[name] for name in ("generated_ids", "margins", "text")})
        unread = UNREAD | ({"pixel_values"} if family.startswith("qwen") else set())
        save_file({name: value.contiguous() for name, value in store.items() if name.removeprefix("input.") not in unread},
                  directory / f"{case['name']}.safetensors")
        print(f"{family} {case['name']}: {len(case['input_ids'])} tokens, margins from {min(case['margins'])}", flush=True)
    (directory / "golden.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False))


def published_qwen_vl(code, directory):
    """The model of the published modeling code, which was written for transformers 4."""
    import torch
    import transformers
    from safetensors.torch import load_file
    transformers.PreTrainedModel.get_head_mask = lambda _self, mask, n_layers: [mask] * n_layers  # gone since
    package = types.ModuleType("qwen_vl_code")
    package.__path__ = [str(code)]
    sys.modules[package.__name__] = package
    kind = importlib.import_module("qwen_vl_code.modeling_qwen").QWenLMHeadModel
    config = kind.config_class(**json.loads((directory / "config.json").read_text()), fp32=True)
    model = kind(config).float().eval()
    weights = {name: value.float() for name, value in load_file(directory / "model.safetensors").items()}
    missing, unknown = model.load_state_dict(weights, strict=False)
    if missing or unknown:
        sys.exit(f"{directory}: weights that are missing: {missing}; that the code does not know: {unknown}")
    return model


def write_qwen_vl(code, directory):
    """The weights are those of the file, rounded: there is no other record of how they were drawn."""
    import torch
    from safetensors.torch import load_file, save_file
    file = directory / "model.safetensors"
    save_file({name: value.to(torch.bfloat16) for name, value in load_file(file).items()}, file, metadata={"format": "pt"})
    model = published_qwen_vl(code.resolve(), directory)
    golden = json.loads((directory / "golden.json").read_text())
    os.chdir(directory)  # the code opens the pictures that the prompt names
    for case in golden["cases"]:
        store = {}
        hook = model.transformer.visual.register_forward_hook(lambda *given: store.update({"tap.vision.output": given[2]}))
        ids, n_seen, past = torch.tensor([case["input_ids"]]), 0, None
        chosen, steps = [], []
        with torch.no_grad():
            while len(steps) <= QWEN_VL_STEPS:  # one row more: what follows the last token
                n_seen += ids.shape[1]
                out = model(input_ids=ids, past_key_values=past, attention_mask=torch.ones(1, n_seen), use_cache=True,
                            return_dict=True)
                store.setdefault("logits", out.logits[0])
                steps.append(out.logits[0, -1])
                past, ids = out.past_key_values, out.logits[:, -1:, :N_QWEN_VL_IDS].argmax(-1)
                chosen.append(int(ids))
        hook.remove()
        case["generated_ids"] = chosen[:-1]
        store["step_logits"] = torch.stack(steps)
        if len(case["parts"]) > 1:
            del store["logits"]  # 554 rows; the tower's output and the steps see the same weights
        save_file({name: value.float().contiguous() for name, value in store.items()}, f"{case['name']}.safetensors")
        print(f"qwen_vl {case['name']}: {len(case['input_ids'])} tokens, answer {case['generated_ids']}", flush=True)
    lines = ",\n".join("  " + json.dumps(case) for case in golden["cases"])
    (directory / "golden.json").write_text(
        f'{{\n "reference": {json.dumps(golden["reference"])},\n "cases": [\n{lines}\n ]\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}, or qwen_vl")
    parser.add_argument("--code", type=pathlib.Path, help="for qwen_vl: directory with modeling_qwen.py and its neighbours")
    arguments = parser.parse_args()
    mend_fuyu()
    for family in arguments.families or FAMILIES:
        directory = GOLDEN / family
        if family == "qwen_vl":
            if arguments.code is None:
                parser.error("qwen_vl wants --code")
            write_qwen_vl(arguments.code, directory)
        elif family in FAMILIES:
            write_weights(family, directory)
            write_references(family, directory)
        else:
            parser.error(f"no family {family}")


if __name__ == "__main__":
    main()
