#!/usr/bin/env python3
"""Measure triptych as one side of a comparison with other engines: one JSON line per measurement.

usage: triptych.py [--program build/release/triptych] MODEL [options]
       triptych.py [--program build/release/triptych] --shapes llava-clip-0.5b [--layers N] [options]

MODEL is a checkpoint directory. Every line is {"engine", "weights", "metric", "value", "unit", "threads"}:
  prefill_tps        the language model's first pass over a prompt of 640 tokens, rows of a picture among them (tok/s)
  decode_tps         one sequence after that prompt, 32 tokens (tok/s)
  decode_batch8_tps  8 sequences that decode at once, each after its own text prompt of 640 tokens: all together (tok/s)
  image_encode_s     preprocessing, tower and projector of one 336 x 336 picture (s)
  ttft_image_s       from the file of that picture, with a short question, to the first token, in a warm process (s)
  peak_rss_mb        largest resident memory of loading and all these but the batch (MB of 2^20 bytes), without the
                     buffer in which the read bandwidth is measured
  peak_rss_batch_mb  the same of the batch's process
With --limits also what the machine could do (int8_peak_tops, read_gbs) and the share of it that was reached
(prefill_share, decode_share, decode_batch8_share, image_encode_share; in percent).
The measurements are those of `triptych bench --json`; nothing is computed here but units.
"""
import argparse
import json
import os
import subprocess
import sys

PROMPT_TOKENS, NEW_TOKENS, BATCH, PICTURE_PX = 640, 32, 8, 336


def run(command):
    """What a child printed, as JSON."""
    child = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    if child.returncode:
        sys.exit(f"{' '.join(command)}\n{child.stderr.decode(errors='replace')[-3000:]}\n"
                 f"exit status {child.returncode}")
    return json.loads(child.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="checkpoint directory")
    parser.add_argument("--shapes", help="random weights of these shapes instead (triptych bench --help lists them)")
    parser.add_argument("--layers", type=int, help="with --shapes: so many layers of the language model")
    parser.add_argument("--program", default="triptych")
    parser.add_argument("--weights", default="int4:g128")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--question-tokens", type=int, default=14,
                        help="text tokens around the picture (default 14: what the others' templates make of their question)")
    parser.add_argument("--reps", type=int, default=1, help="repetitions in one process; medians are printed")
    parser.add_argument("--only", default="prefill,decode,batch,picture")
    parser.add_argument("--limits", action="store_true", help="print the machine's limits and shares of them, too")
    parser.add_argument("--bench-args", default="", help="more words for triptych bench, separated by blanks")
    args = parser.parse_args()
    if (args.model is None) == (args.shapes is None):
        parser.error("either MODEL or --shapes")
    only = args.only.split(",")
    unknown = set(only) - {"prefill", "decode", "batch", "picture"}
    if unknown:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}")
    what = [args.model] if args.model else ["--shapes", args.shapes]
    if args.layers:
        what += ["--layers", str(args.layers)]
    base = [args.program, "bench", *what, "--weights", args.weights, "--threads", str(args.threads),
            "--repeat", str(args.reps), "--prompt-tokens", str(PROMPT_TOKENS), "--decode", str(NEW_TOKENS),
            "--width", str(PICTURE_PX), "--height", str(PICTURE_PX), "--question-tokens", str(args.question_tokens),
            "--json", *args.bench_args.split()]

    def put(metric, value, unit, **more):
        print(json.dumps(dict(engine="triptych", weights=args.weights, metric=metric, value=round(value, 4),
                              unit=unit, threads=args.threads, **more)), flush=True)

    def share(metric, stage):
        if args.limits:
            put(metric, 100 * stage["roofline_share"], "%")

    if {"prefill", "decode", "picture"} & set(only):
        parts = (["answer"] if {"prefill", "decode"} & set(only) else []) + (["question"] if "picture" in only else [])
        if "picture" in only and "answer" not in parts:
            parts.insert(0, "answer")  # stages of the picture are measured there
        out = run(base + ["--only", ",".join(parts)])
        stages = {stage["name"]: stage for stage in out["stages"]}
        if args.limits:
            put("int8_peak_tops", out["limits"]["int8_ops_per_s"] / 1e12, "TOP/s")
            put("read_gbs", out["limits"]["read_bytes_per_s"] / 1e9, "GB/s")
        if "prefill" in only:
            put("prefill_tps", stages["prefill"]["items_per_s"], "tok/s", tokens=out["prompt_tokens"])
            share("prefill_share", stages["prefill"])
        if "decode" in only:
            put("decode_tps", stages["decode"]["items_per_s"], "tok/s", tokens=out["prompt_tokens"])
            share("decode_share", stages["decode"])
        if "picture" in only:
            encode = [stages[name] for name in ("preprocess", "tower", "projector") if name in stages]
            put("image_encode_s", sum(stage["ms"] for stage in encode) / 1000, "s")
            share("image_encode_share", stages["tower"])
            put("ttft_image_s", out["question_first_token_ms"] / 1000, "s", tokens=out["question_tokens"])
        put("peak_rss_mb", out["peak_memory_bytes"] / 2**20, "MB")
    if "batch" in only:
        out = run(base + ["--batch", str(BATCH), "--only", "batch"])
        (stage,) = [s for s in out["stages"] if s["name"] == f"decode of {BATCH}"]
        put("decode_batch8_tps", stage["items_per_s"], "tok/s", tokens=out["prompt_tokens"])
        share("decode_batch8_share", stage)
        put("peak_rss_batch_mb", out["peak_memory_bytes"] / 2**20, "MB")


if __name__ == "__main__":
    main()
