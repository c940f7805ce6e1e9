#!/usr/bin/env python3
"""Builds llama.cpp, converts a LLaVA-1.5 checkpoint for it, and measures it: one JSON line a measurement.

usage: llama_cpp.py build BUILD [--source FOLDER] [--tag TAG]
       llama_cpp.py convert BUILD CHECKPOINT MODELS [TYPE ...]
       llama_cpp.py run BUILD MODELS [--weights TYPE] [--threads N] [--template NAME]

build      clones the repository, or takes sources from FOLDER, and compiles its programs for this processor (git, cmake,
           a C++17 compiler). GCC 12 makes programs that crash where the processor has AMX: CXX=clang++ CC=clang there.
convert    writes text-f16.gguf and mmproj-f16.gguf (numpy, and the Python package in the sources), then text-TYPE.gguf by
           llama.cpp's own quantizer; default type Q4_0.
run        prefill_tps, decode_tps (llama-bench), decode_batch8_tps (llama-batched-bench, one shared prompt),
           image_encode_s, ttft_image_s and peak_rss_mb (llama-mtmd-cli: from the evaluation of the prompt on, which
           contains the encoder; start, load and decoding of the picture are not counted).
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from lines import BATCH, NEW_TOKENS, PROMPT_TOKENS, QUESTION, picture_rgb, png, put

REPOSITORY = "https://github.com/ggml-org/llama.cpp"
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-quantize", "llama-mtmd-cli")


def build(args):
    folder = pathlib.Path(args.build)
    folder.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(args.source) if args.source else folder / "source"
    if not source.exists():
        tag = ["--branch", args.tag] if args.tag else []
        subprocess.run(["git", "clone", "--depth", "1", *tag, REPOSITORY, source], check=True)
    (folder / "source.json").write_text(json.dumps({"source": str(source.resolve())}), encoding="utf-8")
    subprocess.run(["cmake", "-S", source, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                    "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF"], check=True)
    subprocess.run(["cmake", "--build", folder / "build", "--parallel", "--target", *PROGRAMS], check=True)


class Checkpoint:
    """Tensors of a folder of safetensors files, read one at a time."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self.places = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            with open(path, "rb") as file:
                n_bytes = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(n_bytes))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                self.places[name] = (path, 8 + n_bytes + entry["data_offsets"][0], entry["dtype"], entry["shape"])

    def read(self, name):
        import numpy
        path, offset, dtype, shape = self.places[name]
        kinds = {"F16": numpy.float16, "F32": numpy.float32, "BF16": numpy.uint16}
        if dtype not in kinds:
            sys.exit(f"{path}: {name}: type {dtype} is not converted here")
        raw = numpy.fromfile(path, kinds[dtype], int(numpy.prod(shape)), offset=offset)
        if dtype == "BF16":
            raw = (raw.astype(numpy.uint32) << 16).view(numpy.float32)
        return raw.reshape(shape)


def interleaved(rows, n_heads):
    """Rotary halves of each head as neighbours, which is the order of this architecture in GGUF."""
    head = rows.shape[0] // n_heads
    return rows.reshape(n_heads, 2, head // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def add_tensor(writer, name, values, keep_float32=False):
    import numpy
    small = values.ndim == 1 or keep_float32
    writer.add_tensor(name, numpy.ascontiguousarray(values, numpy.float32 if small else numpy.float16))


def add_tokens(writer, gguf, checkpoint, n_vocab):
    tokenizer = json.loads((checkpoint.folder / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = [f"<unused {index}>" for index in range(n_vocab)]
    kinds = [gguf.TokenType.UNUSED] * n_vocab
    for piece, index in tokenizer["model"]["vocab"].items():
        pieces[index] = piece
        kinds[index] = gguf.TokenType.BYTE if re.fullmatch("<0x[0-9A-F]{2}>", piece) else gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        pieces[token["id"]] = token["content"]
        kinds[token["id"]] = gguf.TokenType.UNKNOWN if token["content"] == "<unk>" else gguf.TokenType.CONTROL
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([-float(index) for index in range(n_vocab)])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_text(gguf, checkpoint, path):
    text = checkpoint.config["text_config"]
    heads = text["num_attention_heads"]
    kv_heads = text.get("num_key_value_heads", heads)
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_rope_freq_base(text.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(text["hidden_size"] // heads)
    writer.add_vocab_size(text["vocab_size"])
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    add_tokens(writer, gguf, checkpoint, text["vocab_size"])
    root = "language_model.model."
    add_tensor(writer, "token_embd.weight", checkpoint.read(root + "embed_tokens.weight"))
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for index in range(text["num_hidden_layers"]):
        for theirs, ours in names.items():
            values = checkpoint.read(f"{root}layers.{index}.{ours}.weight")
            if theirs in ("attn_q", "attn_k"):
                values = interleaved(values, heads if theirs == "attn_q" else kv_heads)
            add_tensor(writer, f"blk.{index}.{theirs}.weight", values)
    add_tensor(writer, "output_norm.weight", checkpoint.read(root + "norm.weight"))
    add_tensor(writer, "output.weight", checkpoint.read("language_model.lm_head.weight"))
    close(writer)


def write_tower(gguf, checkpoint, path):
    tower = checkpoint.config["vision_config"]
    processor = json.loads((checkpoint.folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    layer = checkpoint.config["vision_feature_layer"]
    n_layers = layer if layer >= 0 else tower["num_hidden_layers"] + 1 + layer
    writer = gguf.GGUFWriter(path, "clip", use_temp_file=True)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_bool("clip.use_gelu", tower["hidden_act"] == "gelu")
    writer.add_string("clip.projector_type", "mlp")
    numbers = {"image_size": tower["image_size"], "patch_size": tower["patch_size"],
               "embedding_length": tower["hidden_size"], "feed_forward_length": tower["intermediate_size"],
               "block_count": n_layers, "attention.head_count": tower["num_attention_heads"],
               "projection_dim": tower["projection_dim"]}
    for name, value in numbers.items():
        writer.add_uint32("clip.vision." + name, value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", tower["layer_norm_eps"])
    writer.add_array("clip.vision.feature_layer", [n_layers])
    writer.add_array("clip.vision.image_mean", processor["image_mean"])
    writer.add_array("clip.vision.image_std", processor["image_std"])
    root = "vision_tower.vision_model."
    add_tensor(writer, "v.class_embd", checkpoint.read(root + "embeddings.class_embedding"))
    add_tensor(writer, "v.patch_embd.weight", checkpoint.read(root + "embeddings.patch_embedding.weight"))
    add_tensor(writer, "v.position_embd.weight", checkpoint.read(root + "embeddings.position_embedding.weight"), True)
    names = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    pairs = {"v.pre_ln": root + "pre_layrnorm", "mm.0": "multi_modal_projector.linear_1",
             "mm.2": "multi_modal_projector.linear_2"}
    for index in range(n_layers):
        for theirs, ours in names.items():
            pairs[f"v.blk.{index}.{theirs}"] = f"{root}encoder.layers.{index}.{ours}"
    for theirs, ours in pairs.items():
        for part in ("weight", "bias"):
            add_tensor(writer, f"{theirs}.{part}", checkpoint.read(f"{ours}.{part}"))
    close(writer)


def convert(args):
    source = json.loads((pathlib.Path(args.build) / "source.json").read_text(encoding="utf-8"))["source"]
    sys.path.insert(0, os.path.join(source, "gguf-py"))
    import gguf
    checkpoint = Checkpoint(args.checkpoint)
    if checkpoint.config.get("model_type") != "llava":
        sys.exit(f"{args.checkpoint}: expected a checkpoint of model_type llava")
    models = pathlib.Path(args.models)
    models.mkdir(parents=True, exist_ok=True)
    write_text(gguf, checkpoint, models / "text-f16.gguf")
    write_tower(gguf, checkpoint, models / "mmproj-f16.gguf")
    for kind in args.types or ["Q4_0"]:
        subprocess.run([program(args.build, "llama-quantize"), models / "text-f16.gguf", models / f"text-{kind}.gguf",
                        kind], check=True)


def program(folder, name):
    return os.path.join(folder, "build", "bin", name)


def run_child(command):
    """What it printed, and its largest resident memory in MB of 2^20 bytes."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{text[-3000:]}\nexit status {child.returncode}")
    return text, usage.ru_maxrss / 1024


def rate(command, member):
    text, _ = run_child(command)
    found = [json.loads(line)[member] for line in text.splitlines() if line.startswith("{") and f'"{member}"' in line]
    if len(found) != 1:
        sys.exit(f"{' '.join(map(str, command))}: expected one line with {member}, found {len(found)}\n{text[-2000:]}")
    return found[0]


def run(args):
    text = os.path.join(args.models, f"text-{args.weights}.gguf")

    def say(metric, value, unit, **more):
        put("llama.cpp", args.weights, args.threads, metric, value, unit, **more)

    common = ["-m", text, "-t", str(args.threads)]
    bench = [program(args.build, "llama-bench"), *common, "-r", "1", "-o", "jsonl"]
    say("prefill_tps", rate([*bench, "-p", str(PROMPT_TOKENS), "-n", "0"], "avg_ts"), "tok/s", tokens=PROMPT_TOKENS)
    say("decode_tps", rate([*bench, "-p", "0", "-n", str(NEW_TOKENS), "-d", str(PROMPT_TOKENS)], "avg_ts"), "tok/s",
        tokens=PROMPT_TOKENS)
    say("decode_batch8_tps",
        rate([program(args.build, "llama-batched-bench"), *common, "-c", "2048", "-b", "2048", "-npp", str(PROMPT_TOKENS),
              "-ntg", str(NEW_TOKENS), "-npl", str(BATCH), "-pps", "--kv-unified", "--output-format", "jsonl"], "speed_tg"),
        "tok/s", tokens=PROMPT_TOKENS)
    with tempfile.NamedTemporaryFile(suffix=".png") as picture:
        picture.write(png(picture_rgb()))
        picture.flush()
        output, rss_mb = run_child([program(args.build, "llama-mtmd-cli"), *common, "--mmproj",
                                    os.path.join(args.models, "mmproj-f16.gguf"), "--image", picture.name, "-p", QUESTION,
                                    "-n", "4", "-c", "2048", "--temp", "0", "--perf", "-lv", "4", "--chat-template",
                                    args.template])
    encode_s = sum(int(ms) for ms in re.findall(r"(?:encoding done|slice encoded) in (\d+) ms", output)) / 1000
    prompt = re.search(r"prompt eval time\s*=\s*([\d.]+) ms\s*/\s*(\d+) tokens", output)
    if not encode_s or not prompt:
        sys.exit(f"llama-mtmd-cli: no times in what it printed\n{output[-3000:]}")
    say("image_encode_s", encode_s, "s")
    say("ttft_image_s", max(float(prompt[1]) / 1000, encode_s), "s", tokens=int(prompt[2]))
    say("peak_rss_mb", rss_mb, "MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("build")
    verb.add_argument("build")
    verb.add_argument("--source", help="folder with the sources of llama.cpp instead of a clone")
    verb.add_argument("--tag", help="release to clone; without it the newest state")
    verb.set_defaults(action=build)
    verb = verbs.add_parser("convert")
    verb.add_argument("build")
    verb.add_argument("checkpoint")
    verb.add_argument("models")
    verb.add_argument("types", nargs="*")
    verb.set_defaults(action=convert)
    verb = verbs.add_parser("run")
    verb.add_argument("build")
    verb.add_argument("models")
    verb.add_argument("--weights", default="Q4_0")
    verb.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    verb.add_argument("--template", default="vicuna", help="of the question about the picture")
    verb.set_defaults(action=run)
    args = parser.parse_args()
    args.action(args)


if __name__ == "__main__":
    main()
