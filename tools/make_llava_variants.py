#!/usr/bin/env python3
"""Makes the small random LLaVA checkpoints below tests/data/golden/llava_variants, one for each way published ones differ,
with reference values (tools/make_golden.py).

    tools/make_llava_variants.py [NAME...]

Tokenizer, template and pictures are those of tests/data/golden/llava. Weights are stored as bfloat16 to keep the files
small; the reference and the parity test compute in float32. Needs what tools/make_golden.py needs.
"""
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "tests/data/golden/llava"
OUT = HERE.parent / "tests/data/golden/llava_variants"

VISION = dict(hidden_size=36, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3, patch_size=14)
TEXT = dict(vocab_size=576, hidden_size=64, intermediate_size=120, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=None, max_position_embeddings=512)
CLIP = dict(model_type="clip_vision_model", image_size=56, projection_dim=36, **VISION)
# 58 is no multiple of 14: the convolution leaves the last pixels out, as in siglip-so400m-patch14-384.
SIGLIP = dict(model_type="siglip_vision_model", image_size=58, **VISION)


def rope(kind, theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


# name: (vision, text, LLaVA's own fields)
VARIANTS = {
    "siglip_qwen2_tied": (SIGLIP, dict(TEXT, model_type="qwen2", tie_word_embeddings=True, rope_parameters=rope("default", 1e6)),
                          dict(vision_feature_layer=-2, vision_feature_select_strategy="full", tie_word_embeddings=True)),
    "siglip_last_layer": (SIGLIP, dict(TEXT, model_type="llama"),
                          dict(vision_feature_layer=-1, vision_feature_select_strategy="full")),
    "layer_list_linear_rope": (CLIP, dict(TEXT, model_type="llama", rope_parameters=rope("linear", factor=4.0)),
                               dict(vision_feature_layer=[-3, -1], vision_feature_select_strategy="default",
                                    multimodal_projector_bias=False)),
    "full_mistral": (CLIP, dict(TEXT, model_type="mistral", head_dim=24, sliding_window=None,
                                rope_parameters=rope("default", 1e6)),
                     dict(vision_feature_layer=1, vision_feature_select_strategy="full")),
    # Prompts are longer than these windows.
    "sliding_mistral": (CLIP, dict(TEXT, model_type="mistral", sliding_window=9),
                        dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
    "sliding_qwen2": (CLIP, dict(TEXT, model_type="qwen2", num_hidden_layers=3, use_sliding_window=True, sliding_window=11,
                                 max_window_layers=1),
                      dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
    "llama3_rope": (CLIP, dict(TEXT, model_type="llama", rope_parameters=rope(
        "llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
                    dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
    "yarn_biases": (CLIP, dict(TEXT, model_type="llama", attention_bias=True, mlp_bias=True, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=32)),
                    dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
    "yarn_derived_factor": (CLIP, dict(TEXT, model_type="llama", rope_parameters=rope(
        "yarn", factor=None, original_max_position_embeddings=64, mscale=0.7, mscale_all_dim=0.4, beta_fast=24, beta_slow=2,
        truncate=False)), dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
    "dynamic_rope": (CLIP, dict(TEXT, model_type="llama", max_position_embeddings=32, rope_parameters=rope(
        "dynamic", factor=2.0)), dict(vision_feature_layer=-2, vision_feature_select_strategy="default")),
}


def build(name, directory):
    import torch
    import transformers
    vision, text, own = VARIANTS[name]
    config = transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=558, **own)
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():  # wider than the usual start, biases and norms too, so that every weight shows
        for key, weight in model.named_parameters():
            is_norm = "norm" in key and key.endswith("weight")
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() == 1 else 1.5 / weight[0].numel() ** 0.5) + is_norm)
    model.to(torch.bfloat16).save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.json", "generation_config.json"):
        shutil.copy(SOURCE / file, directory / file)
    is_siglip = vision["model_type"].startswith("siglip")
    side = vision["image_size"]
    processor = json.loads((SOURCE / "preprocessor_config.json").read_text())
    if is_siglip:
        processor = dict(image_processor_type="SiglipImageProcessor", do_resize=True, do_rescale=True, do_normalize=True,
                         image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3, rescale_factor=1 / 255,
                         size=dict(height=side, width=side))
    else:
        processor.update(size=dict(shortest_edge=side), crop_size=dict(height=side, width=side))
    (directory / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")


def main():
    for name in sys.argv[1:] or VARIANTS:
        directory = OUT / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        build(name, directory)
        shutil.copy(SOURCE / "a.png", directory / "a.png")
        subprocess.run([sys.executable, HERE / "make_golden.py", directory, directory, "--taps", "1", "--steps", "8", "--case",
                        "one_image", directory / "a.png", "What is in the picture?"], check=True)


if __name__ == "__main__":
    main()
