#!/usr/bin/env python3
"""Writes a LLaVA-1.5 checkpoint of a published size with random weights, for engines that need files.

usage: random_checkpoint.py 0.5b|7b|13b OUT --tokenizer TOKENIZER.json [--layers N] [--seed N]

"7b" and "13b" have the sizes of llava-hf/llava-1.5-7b-hf and -13b-hf; "0.5b" is no published model: a language model
as wide as Qwen2 0.5B behind the same CLIP tower. Speed does not depend on the values. TOKENIZER.json is any tokenizer
of LLaMA's form with 32000 entries. Weights are float16 in shards of at most 2 GB, made and written tensor by tensor.
Needs numpy. What an engine answers with these weights is noise.
"""
import argparse
import json
import pathlib

import numpy

SHARD_BYTES = 2 * 10**9
VOCABULARY = 32064
IMAGE_TOKEN = 32000
# hidden, intermediate, layers, heads, key/value heads
SIZES = {"0.5b": (896, 4864, 24, 14, 2), "7b": (4096, 11008, 32, 32, 32), "13b": (5120, 13824, 40, 40, 40)}
TOWER = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768,
         "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}


def configuration(size, layers):
    hidden, intermediate, all_layers, heads, kv_heads = SIZES[size]
    text = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
            "intermediate_size": intermediate, "num_hidden_layers": layers or all_layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": VOCABULARY,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "float16"}
    return {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "torch_dtype": "float16",
            "image_token_index": IMAGE_TOKEN, "projector_hidden_act": "gelu", "vision_feature_layer": -2,
            "vision_feature_select_strategy": "default", "tie_word_embeddings": False, "text_config": text,
            "vision_config": TOWER}


def linear(name, rows, columns, bias):
    yield name + ".weight", (rows, columns)
    if bias:
        yield name + ".bias", (rows,)


def norm(name, width, bias):
    yield name + ".weight", (width,)
    if bias:
        yield name + ".bias", (width,)


def tower_tensors():
    width, inner = TOWER["hidden_size"], TOWER["intermediate_size"]
    patch = TOWER["patch_size"]
    root = "vision_tower.vision_model."
    yield root + "embeddings.class_embedding", (width,)
    yield root + "embeddings.patch_embedding.weight", (width, 3, patch, patch)
    yield root + "embeddings.position_embedding.weight", ((TOWER["image_size"] // patch) ** 2 + 1, width)
    yield from norm(root + "pre_layrnorm", width, True)
    yield from norm(root + "post_layernorm", width, True)
    for index in range(TOWER["num_hidden_layers"]):
        layer = f"{root}encoder.layers.{index}."
        for part in ("layer_norm1", "layer_norm2"):
            yield from norm(layer + part, width, True)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(layer + "self_attn." + part, width, width, True)
        yield from linear(layer + "mlp.fc1", inner, width, True)
        yield from linear(layer + "mlp.fc2", width, inner, True)


def language_tensors(text):
    width, inner = text["hidden_size"], text["intermediate_size"]
    kv_width = width // text["num_attention_heads"] * text["num_key_value_heads"]
    yield "language_model.model.embed_tokens.weight", (VOCABULARY, width)
    for index in range(text["num_hidden_layers"]):
        layer = f"language_model.model.layers.{index}."
        for part in ("input_layernorm", "post_attention_layernorm"):
            yield from norm(layer + part, width, False)
        for part, rows in (("q_proj", width), ("k_proj", kv_width), ("v_proj", kv_width), ("o_proj", width)):
            yield from linear(layer + "self_attn." + part, rows, width, False)
        yield from linear(layer + "mlp.gate_proj", inner, width, False)
        yield from linear(layer + "mlp.up_proj", inner, width, False)
        yield from linear(layer + "mlp.down_proj", width, inner, False)
    yield from norm("language_model.model.norm", width, False)
    yield from linear("language_model.lm_head", VOCABULARY, width, False)


def all_tensors(config):
    yield from tower_tensors()
    width = config["text_config"]["hidden_size"]
    yield from linear("multi_modal_projector.linear_1", width, TOWER["hidden_size"], True)
    yield from linear("multi_modal_projector.linear_2", width, width, True)
    yield from language_tensors(config["text_config"])


def values(random, name, shape):
    """Norms near one, biases small, matrices so that a row of order one stays of order one."""
    if len(shape) == 1:
        centre = 1.0 if name.endswith("weight") and "norm" in name.rsplit(".", 2)[-2] else 0.0
        return (centre + 0.02 * random.standard_normal(shape, dtype=numpy.float32)).astype(numpy.float16)
    scale = numpy.float32(numpy.prod(shape[1:])) ** -0.5
    return (scale * random.standard_normal(shape, dtype=numpy.float32)).astype(numpy.float16)


def shards_of(tensors):
    shards = [[]]
    used = 0
    for name, shape in tensors:
        n_bytes = 2 * int(numpy.prod(shape))
        if shards[-1] and used + n_bytes > SHARD_BYTES:
            shards.append([])
            used = 0
        shards[-1].append((name, shape, n_bytes))
        used += n_bytes
    return shards


def write_weights(folder, tensors, random):
    shards = shards_of(tensors)
    places = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for tensor, shape, n_bytes in shard:
            header[tensor] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + n_bytes]}
            places[tensor] = name
            at += n_bytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor, shape, _ in shard:
                file.write(values(random, tensor, shape).tobytes())
    if len(shards) > 1:
        write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def write_tokenizer(folder, source):
    tokenizer = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))
    known = {token["content"] for token in tokenizer["added_tokens"]}
    for index, content in ((IMAGE_TOKEN, "<image>"), (IMAGE_TOKEN + 1, "<pad>")):
        if content not in known:
            tokenizer["added_tokens"].append({"id": index, "content": content, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False, "special": True})
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json",
               {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                "pad_token": "<pad>", "image_token": "<image>", "model_max_length": 4096})
    write_json(folder / "chat_template.json", {"chat_template": (
        "{% for m in messages %}{{ m.role.upper() }}: {% if m.content is string %}{{ m.content }}{% else %}"
        "{% for part in m.content %}{% if part.type == 'image' %}<image>\n{% else %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endif %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}")})


def write_processor(folder):
    write_json(folder / "preprocessor_config.json",
               {"image_processor_type": "CLIPImageProcessor", "processor_class": "LlavaProcessor", "do_resize": True,
                "size": {"shortest_edge": 336}, "resample": 3, "do_center_crop": True,
                "crop_size": {"height": 336, "width": 336}, "do_rescale": True, "rescale_factor": 1 / 255,
                "do_normalize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
                "image_std": [0.26862954, 0.26130258, 0.27577711], "do_convert_rgb": True})
    write_json(folder / "processor_config.json",
               {"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 14,
                "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"})
    write_json(folder / "generation_config.json",
               {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": IMAGE_TOKEN + 1, "do_sample": False})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=sorted(SIZES))
    parser.add_argument("out")
    parser.add_argument("--tokenizer", required=True, metavar="TOKENIZER.json")
    parser.add_argument("--layers", type=int, help="of the language model: fewer need less disk and time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = pathlib.Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    config = configuration(args.size, args.layers)
    write_weights(folder, all_tensors(config), numpy.random.default_rng(args.seed))
    write_json(folder / "config.json", config)
    write_tokenizer(folder, args.tokenizer)
    write_processor(folder)


if __name__ == "__main__":
    main()
