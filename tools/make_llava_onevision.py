#!/usr/bin/env python3
"""Makes the small random LLaVA-OneVision checkpoint tests/data/golden/llava_onevision with reference values
(tools/make_golden.py): a picture whose tiles' map is above the cap, two pictures, a video.

    tools/make_llava_onevision.py

The tokenizer is that of tests/data/golden/qwen2_vl with two tokens more. Weights are stored as bfloat16 to keep the files
small; the reference and the parity test compute in float32. Needs what tools/make_golden.py needs, and torchvision.
"""
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests/data/golden"
OUT = GOLDEN / "llava_onevision"
SIDE = 44  # no multiple of 14, as the published 384
PINPOINTS = [[SIDE * rows, SIDE * columns] for rows in range(1, 4) for columns in range(1, 4)]
RATIO = "anyres_max_2"
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}{{ '<video>\n' }}{% endfor %}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ '\n' + content['text'] }}{% endfor %}"
    "{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ '\n' + content['text'] }}{% endgeneration %}{% endfor %}"
    "{% endif %}{{'<|im_end|>'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def make_tokenizer(directory):
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / "qwen2_vl")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", "<video>"]}, replace_extra_special_tokens=False)
    tokenizer.save_pretrained(directory)
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}, indent=2) + "\n")
    return tokenizer


def make_model(directory, tokenizer):
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    ident = tokenizer.convert_tokens_to_ids
    vision = transformers.SiglipVisionConfig(hidden_size=36, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3,
                                             image_size=SIDE, patch_size=14, vision_use_head=False)
    text = transformers.Qwen2Config(vocab_size=64 * -(-len(tokenizer) // 64), hidden_size=64, intermediate_size=136,
                                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rope_theta=1e6,
                                    max_position_embeddings=2048, tie_word_embeddings=True,
                                    bos_token_id=ident("<|endoftext|>"), eos_token_id=ident("<|im_end|>"))
    config = transformers.LlavaOnevisionConfig(
        vision_config=vision.to_dict(), text_config=text.to_dict(), image_token_index=ident("<image>"),
        video_token_index=ident("<video>"), image_grid_pinpoints=PINPOINTS, vision_aspect_ratio=RATIO, tie_word_embeddings=True)
    torch.manual_seed(20)
    model = transformers.LlavaOnevisionForConditionalGeneration(config).eval()
    with torch.no_grad():  # wider than the usual start, biases and norms too, so that every weight shows
        for key, weight in model.named_parameters():
            is_norm = "norm" in key and key.endswith("weight")
            scale = 0.25 if "embed_tokens" in key else 0.2 if weight.dim() == 1 else 1.5 / weight[0].numel() ** 0.5
            weight.copy_(torch.randn_like(weight) * (0.5 if "newline" in key else scale) + is_norm)
    model.to(torch.bfloat16).save_pretrained(directory)
    # Published directories have one level more in the tower's names than transformers 5 writes.
    path = directory / "model.safetensors"
    tensors = {name.replace("vision_tower.", "vision_tower.vision_model."): value for name, value in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def make_processor(directory):
    """The files of published directories, with the names of the time."""
    common = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True, image_mean=[0.5] * 3,
                  image_std=[0.5] * 3, rescale_factor=1 / 255, resample=3, size=dict(height=SIDE, width=SIDE))
    files = {
        "preprocessor_config.json": dict(common, do_pad=True, image_grid_pinpoints=PINPOINTS,
                                         image_processor_type="LlavaOnevisionImageProcessor",
                                         processor_class="LlavaOnevisionProcessor"),
        "video_preprocessor_config.json": dict(common, video_processor_type="LlavaOnevisionVideoProcessor",
                                               processor_class="LlavaOnevisionProcessor"),
        "processor_config.json": dict(num_image_tokens=(SIDE // 14) ** 2, vision_feature_select_strategy="full",
                                      vision_aspect_ratio=RATIO, image_token="<image>", video_token="<video>",
                                      processor_class="LlavaOnevisionProcessor"),
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value, indent=2) + "\n")


def draw(directory):
    """Pictures with a gradient, shapes and noise; frames on which a disc wanders, of a size that needs no resizing."""
    import numpy
    from PIL import Image, ImageDraw
    random = numpy.random.default_rng(5)
    for name, (width, height) in {"a.png": (120, 78), "b.png": (31, 90)}.items():
        picture = Image.fromarray(numpy.linspace(40, 200, width * height * 3).reshape(height, width, 3).astype("uint8"))
        pen = ImageDraw.Draw(picture)
        pen.ellipse((width * 0.1, height * 0.2, width * 0.5, height * 0.7), fill=(220, 60, 40))
        pen.rectangle((width * 0.6, height * 0.5, width * 0.9, height * 0.9), fill=(30, 200, 80))
        noisy = numpy.asarray(picture).astype(int) + random.integers(-6, 7, (height, width, 3))
        Image.fromarray(noisy.clip(0, 255).astype("uint8")).save(directory / name, optimize=True)
    for k in range(3):
        frame = Image.new("RGB", (SIDE, SIDE), (30, 60, 90 + 30 * k))
        ImageDraw.Draw(frame).ellipse((3 + 9 * k, 6 + 5 * k, 20 + 9 * k, 24 + 5 * k), fill=(230, 200 - 40 * k, 50))
        frame.save(directory / f"frame{k}.png", optimize=True)


def drop_pixels(path):
    """The pictures' pixels are compared in other cases."""
    from safetensors.torch import load_file, save_file
    save_file({name: value for name, value in load_file(path).items() if name != "input.pixel_values"}, path)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    make_model(OUT, make_tokenizer(OUT))
    make_processor(OUT)
    draw(OUT)
    frames = [OUT / f"frame{k}.png" for k in range(3)]
    subprocess.run([sys.executable, HERE / "make_golden.py", OUT, OUT, "--taps", "1", "--steps", "8",
                    "--case", "capped_image", OUT / "a.png", "What is in the picture?",
                    "--case", "two_images", OUT / "b.png", OUT / "a.png", "Compare.",
                    "--video", "video", "2", *frames, "What happens?"], check=True)
    drop_pixels(OUT / "two_images.safetensors")
    for path in OUT.glob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
