#!/usr/bin/env python3
"""Fails when an inner loop of the integer kernels keeps vector registers on the stack.

  tools/check_spills.py BUILD_DIR [--verbose]

A compiler that runs out of registers moves sums to memory and back in every round: correct, and twice as slow. Disassembles the
object files of the kernels below with objdump and looks at innermost loops (from a backward jump to its target) with as
many of the multiply instructions of that file as stated: none may name a vector register and the stack in one instruction.
"""
import argparse
import glob
import re
import subprocess
import sys

# object file (as a glob below the build directory) -> its multiply instructions, and how many of them make a loop one of products
KERNELS = {
    "**/kernels/gemm_s8/x86_avx512vnni.cc.o": (r"vpdpbusds?", 8),
    "**/kernels/gemm_s8/x86_avx2.cc.o": (r"vpmaddwd", 4),
    "**/kernels/gemm_s4/x86_avx2.cc.o": (r"vpmaddubsw", 4),
    "**/kernels/attention_s8/x86_avx2.cc.o": (r"vpmaddwd", 4),
    "**/kernels/attention_s8/x86_avx512vnni.cc.o": (r"vpdpbusds?", 8),
    "**/kernels/gemm/x86_avx512.cc.o": (r"vfmadd\d+ps", 8),
    "**/kernels/gemm/x86_avx512bf16.cc.o": (r"vdpbf16ps", 8),
    "**/kernels/gemm/x86_avx2.cc.o": (r"vfmadd\d+ps", 8),
    "**/kernels/gemm_s8/x86_amxint8.cc.o": (r"tdpb(ssd|sud|usd|uud)", 4),
    "**/kernels/gemm/x86_amxbf16.cc.o": (r"tdpbf16ps", 4),
    "**/kernels/attention_s8/x86_amxint8.cc.o": (r"tdpb(ssd|sud|usd|uud)", 4),
}

LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
STACK = re.compile(r"\(%r[sb]p")
VECTOR = re.compile(r"%[xyzt]mm\d+")


def functions(path):
    """Yields (name, [(address, mnemonic, operands)]) of an object file."""
    text = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True,
                          text=True).stdout
    name, body = None, []
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            if name is not None:
                yield name, body
            name, body = match[1], []
        elif match := LINE.match(line):
            body.append((int(match[1], 16), match[2], match[3]))
    if name is not None:
        yield name, body


def inner_loops(body):
    """Instructions of each innermost loop: from a backward jump's target to the jump."""
    spans = []
    for address, mnemonic, operands in body:
        target = re.match(r"^([0-9a-f]+) ", operands + " ") if mnemonic.startswith("j") else None
        if target and body[0][0] <= int(target[1], 16) <= address:
            spans.append((int(target[1], 16), address))
    for begin, end in spans:
        if not any(b >= begin and e <= end and (b, e) != (begin, end) for b, e in spans):
            yield [one for one in body if begin <= one[0] <= end]


def check(path, products, least, verbose):
    """Returns (number of loops with products, problems)."""
    n_loops, problems = 0, []
    for name, body in functions(path):
        if not body:
            continue
        for loop in inner_loops(body):
            n = sum(1 for _, mnemonic, _ in loop if re.fullmatch(products, mnemonic))
            if n < least:
                continue
            n_loops += 1
            spills = [f"{a:x}: {m} {o}" for a, m, o in loop if STACK.search(o) and VECTOR.search(o)]
            if verbose:
                print(f"  {name}: {n} products, {len(loop)} instructions, {len(spills)} with the stack")
            if spills:
                problems.append(f"{path}: {name}: {len(spills)} of {len(loop)} instructions of the inner loop "
                                f"keep vectors on the stack, e.g. {spills[0]}")
    return n_loops, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_dir")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    n_files, problems = 0, []
    for pattern, (products, least) in KERNELS.items():
        for path in glob.glob(f"{args.build_dir}/{pattern}", recursive=True):
            n_files += 1
            if args.verbose:
                print(path)
            n_loops, found = check(path, products, least, args.verbose)
            problems += found
            if n_loops == 0:
                problems.append(f"{path}: no inner loop with {least} of '{products}': what should be checked?")
    for problem in problems:
        print(problem)
    if n_files == 0:
        problems.append("")
        print(f"{args.build_dir}: none of the kernels' object files is there")
    print(f"check_spills: {n_files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
