#!/usr/bin/env python3
"""Sets up OpenVINO GenAI, converts a LLaVA-1.5 checkpoint for it, and measures it: one JSON line a measurement.

usage: openvino_peer.py setup ENVIRONMENT
       ENVIRONMENT/bin/python openvino_peer.py convert CHECKPOINT MODEL [--weights int4|int8] [--group N]
       ENVIRONMENT/bin/python openvino_peer.py run MODEL [--weights LABEL] [--threads N] [--set KEY=VALUE ...]

setup      a Python environment with the versions that docs/performance.md was measured with (Python 3.11).
convert    optimum-intel's exporter: int4 is symmetric in groups of N (128) without data; output layer, embeddings and
           tower become int8, as the exporter does by default.
run        prefill_tps: a prompt of text, its tokens over the time to the first token less what preparing embeddings took;
           decode_tps: 32 tokens after it; image_encode_s and ttft_image_s; peak_rss_mb of all these;
           decode_batch8_tps and peak_rss_batch_mb: 8 prompts of their own at once.
           Prefixes are not cached, and no prompt or picture comes twice.
--set INFERENCE_PRECISION_HINT=f32 is faster on some processors: measure both.
"""
import argparse
import os
import random
import resource
import subprocess
import sys
import time

from lines import BATCH, NEW_TOKENS, PICTURE_PX, PROMPT_TOKENS, QUESTION, picture_rgb, put

PACKAGES = ["torch==2.13.0", "transformers==4.57.6", "huggingface-hub<1.0", "nncf==3.4.0", "openvino==2026.4.1",
            "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0", "pillow", "requests"]
# Without what they depend on: that asks for torchvision, which LLaVA does not need.
ALONE = ["optimum-intel==2.2.0", "optimum==2.3.0"]
WORDS = "house river window garden letter music winter market island bridge engine colour".split()


def setup(args):
    subprocess.run([sys.executable, "-m", "venv", args.environment], check=True)
    pip = [os.path.join(args.environment, "bin", "pip"), "install"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *ALONE], check=True)


def convert(args):
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino", "--model", args.checkpoint,
               "--task", "image-text-to-text", "--weight-format", args.weights]
    if args.weights == "int4":
        command += ["--ratio", "1.0", "--group-size", str(args.group), "--sym"]
    subprocess.run([*command, args.model], check=True, env=dict(os.environ, HF_HUB_OFFLINE="1"))


def peak_rss_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Prompts:
    """Texts of so many tokens, none like another."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.random = random.Random(1)

    def count(self, words):
        return self.tokenizer.encode(" ".join(words)).input_ids.shape[1]

    def text(self, n_tokens):
        words = [self.random.choice(WORDS) for _ in range(n_tokens)]
        while self.count(words) > n_tokens:
            words.pop()
        while self.count(words) < n_tokens:
            words.append("a")
        return " ".join(words)


def run(args):
    import numpy
    import openvino
    import openvino_genai as genai
    settings = {"INFERENCE_NUM_THREADS": args.threads, **dict(one.split("=", 1) for one in args.set)}
    label = " ".join([args.weights, *args.set])

    def say(metric, value, unit, **more):
        put("openvino", label, args.threads, metric, value, unit, **more)

    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = 1 << 20  # a prompt in one step

    def limits(n_tokens, template=False):
        config = genai.GenerationConfig()
        config.max_new_tokens = n_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = template
        return config

    def picture(seed):
        pixels = numpy.frombuffer(picture_rgb(seed), numpy.uint8)
        return openvino.Tensor(pixels.reshape(1, PICTURE_PX, PICTURE_PX, 3).copy())

    pipeline = genai.VLMPipeline(args.model, "CPU", scheduler_config=scheduler, **settings)
    prompts = Prompts(pipeline.get_tokenizer())
    pipeline.generate(prompts.text(64), images=[picture(1)], generation_config=limits(4))  # warm
    pipeline.generate(prompts.text(PROMPT_TOKENS), generation_config=limits(2))
    times = pipeline.generate(prompts.text(PROMPT_TOKENS), generation_config=limits(NEW_TOKENS + 1)).perf_metrics
    n_tokens = times.get_num_input_tokens()
    first_ms = times.get_ttft().mean - times.get_prepare_embeddings_duration().mean
    say("prefill_tps", 1000 * n_tokens / first_ms, "tok/s", tokens=n_tokens)
    say("decode_tps", 1000 / times.get_tpot().mean, "tok/s", tokens=n_tokens)
    times = pipeline.generate(QUESTION, images=[picture(2)], generation_config=limits(4, template=True)).perf_metrics
    say("image_encode_s", times.get_vision_encoding_duration().mean / 1000, "s")
    say("ttft_image_s", times.get_ttft().mean / 1000, "s", tokens=times.get_num_input_tokens())
    say("peak_rss_mb", peak_rss_mb(), "MB")
    del pipeline

    batch = genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU", settings)
    prompts = Prompts(batch.get_tokenizer())

    def seconds_of_steps(n_prompt, n_new):
        for number in range(BATCH):
            batch.add_request(number, prompts.text(n_prompt), [], limits(n_new))
        out = []
        while batch.has_non_finished_requests():
            begun = time.perf_counter()
            batch.step()
            out.append(time.perf_counter() - begun)
        return out

    seconds_of_steps(32, 4)  # warm
    steps = seconds_of_steps(PROMPT_TOKENS, NEW_TOKENS + 1)
    if len(steps) != NEW_TOKENS + 1:
        sys.exit(f"expected {NEW_TOKENS + 1} steps, the prompts in the first, got {len(steps)}")
    say("decode_batch8_tps", BATCH * NEW_TOKENS / sum(steps[1:]), "tok/s", tokens=PROMPT_TOKENS)
    say("peak_rss_batch_mb", peak_rss_mb(), "MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("setup")
    verb.add_argument("environment")
    verb.set_defaults(action=setup)
    verb = verbs.add_parser("convert")
    verb.add_argument("checkpoint")
    verb.add_argument("model")
    verb.add_argument("--weights", choices=("int4", "int8"), default="int4")
    verb.add_argument("--group", type=int, default=128)
    verb.set_defaults(action=convert)
    verb = verbs.add_parser("run")
    verb.add_argument("model")
    verb.add_argument("--weights", default="int4", help="how the lines name them")
    verb.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    verb.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="properties of the CPU plugin")
    verb.set_defaults(action=run)
    args = parser.parse_args()
    args.action(args)


if __name__ == "__main__":
    main()
