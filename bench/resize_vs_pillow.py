"""Our resize against Pillow's, one thread each, in one run.

    python bench/resize_vs_pillow.py BUILD/bench/media_bench [ROUNDS]      (needs Pillow and NumPy)

Rounds alternate between the two programs; medians of processor time are compared, so that a busy machine disturbs less.
"""
import json, os, statistics, subprocess, sys, time

import numpy as np
import PIL
from PIL import Image

PROGRAM, ROUNDS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
FILTERS = {"bicubic": Image.BICUBIC, "bilinear": Image.BILINEAR, "lanczos": Image.LANCZOS}


def ours(isa):
    out = subprocess.run([PROGRAM, "--benchmark_filter=^run", "--benchmark_min_time=0.03", "--benchmark_format=json"],
                         env=dict(os.environ, TRIPTYCH_ISA=isa), capture_output=True, text=True)
    if out.returncode != 0 or not out.stdout:
        return {}
    return {b["name"]: b["cpu_time"] for b in json.loads(out.stdout)["benchmarks"]}


def pillow(image, size, code):
    n, start = 0, time.process_time()
    while n < 3 or time.process_time() - start < 0.03:
        image.resize(size, code)
        n += 1
    return (time.process_time() - start) / n * 1e3


isas = [isa for isa in ("scalar", "avx2", "avx512") if ours(isa)]
names = list(ours(isas[0]))
images = {}
times = {name: {k: [] for k in ["pillow", *isas]} for name in names}
for _ in range(ROUNDS):
    for isa in isas:
        for name, ms in ours(isa).items():
            times[name][isa].append(ms)
    for name in names:
        _, flt, w, h, ow, oh = name.split("/")
        key = (int(w), int(h))
        if key not in images:
            images[key] = Image.fromarray(np.random.default_rng(0).integers(0, 256, (key[1], key[0], 3)).astype(np.uint8))
        times[name]["pillow"].append(pillow(images[key], (int(ow), int(oh)), FILTERS[flt]))
print(f"Pillow {PIL.__version__}, milliseconds of processor time, medians of {ROUNDS}; in brackets: times as fast as Pillow")
for name in names:
    median = {k: statistics.median(v) for k, v in times[name].items()}
    _, flt, w, h, ow, oh = name.split("/")
    print(f"{flt:9} {w}x{h} -> {ow}x{oh}: Pillow {median['pillow']:.2f}", *(f"  {isa} {median[isa]:.2f} ({median['pillow'] / median[isa]:.1f}x)" for isa in isas))
