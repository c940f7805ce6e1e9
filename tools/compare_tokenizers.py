#!/usr/bin/env python3
"""Times Hugging Face's Rust tokenizers and this project's on the same text, in turns, one thread each, in processor time.

    tools/compare_tokenizers.py BENCH TOKENIZER.json TEXT

BENCH is the program text_bench (built with -DTRIPTYCH_BENCH=ON). Needs: pip install tokenizers
"""

import json
import os
import re
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def main():
    bench, path, text_path = sys.argv[1:4]
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    n_bytes = len(text.encode())
    start = time.process_time()
    tokenizer = tokenizers.Tokenizer.from_file(path)
    load_s = time.process_time() - start
    tokenizer.no_truncation()
    lines = text.splitlines(keepends=True)
    n_ids = len(tokenizer.encode(text, add_special_tokens=False).ids)
    rounds = []
    for _ in range(3):
        start = time.process_time()
        tokenizer.encode_batch_fast([text], add_special_tokens=False)
        whole = time.process_time() - start
        start = time.process_time()
        tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        by_line = time.process_time() - start
        environment = dict(os.environ, TRIPTYCH_BENCH_TEXT=text_path, TRIPTYCH_BENCH_TOKENIZER=path)
        out = json.loads(subprocess.run(
            [bench, "--benchmark_filter=(encode_text|load_json)/byte_level_bpe", "--benchmark_format=json"],
            env=environment, check=True, capture_output=True).stdout)
        ours = {re.sub("/.*", "", b["name"]): b for b in out["benchmarks"]}
        assert int(ours["encode_text"]["ids"]) == n_ids, "the two disagree"
        rounds.append((whole, by_line, ours["encode_text"]["cpu_time"] / 1e3, ours["load_json"]["cpu_time"] / 1e3))
    whole, by_line, mine, load = (sorted(column)[1] for column in zip(*rounds))
    print(f"{n_bytes / 1e6:.1f} MB, {n_ids} ids; median of 3 rounds")
    print(f"  rust, whole text   {n_bytes / whole / 1e6:8.2f} MB/s   load {load_s * 1e3:.0f} ms")
    print(f"  rust, line by line {n_bytes / by_line / 1e6:8.2f} MB/s")
    print(f"  triptych           {n_bytes / mine / 1e6:8.2f} MB/s   load {load * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
