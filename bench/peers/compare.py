#!/usr/bin/env python3
"""Runs measuring commands in turn, round after round, and prints the median of every metric.

usage: compare.py [--rounds 5] [--title TEXT] [--out FILE.json] "NAME=COMMAND" "NAME=COMMAND" ...

A COMMAND prints one JSON object a line with at least "metric", "value" and "unit", as triptych.py does; other lines are
skipped. In turn means A B A B, not A A B B: what the machine does meanwhile (clock, neighbours) meets all sides alike.
A command that fails ends the comparison. --out gets one JSON document with every single value.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time


def processor():
    """As /proc/cpuinfo names it; "unknown" where it does not."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else "unknown"


def measure(name, command):
    """The objects that one run of the command prints."""
    child = subprocess.run(shlex.split(command), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if child.returncode:
        sys.exit(f"{name}: exit status {child.returncode}\n{child.stderr[-3000:]}")
    out = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    if not out:
        sys.exit(f"{name}: it printed no JSON line\n{child.stdout[-500:]}")
    for one in out:
        missing = {"metric", "value", "unit"} - one.keys()
        if missing:
            sys.exit(f"{name}: a line without {', '.join(sorted(missing))}: {one}")
    return out


def table(names, values):
    """Markdown: a row a metric, a column a side; median (lowest to highest)."""
    lines = ["| metric | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for (metric, unit), sides in values.items():
        cells = []
        for name in names:
            found = sides.get(name)
            cells.append("-" if not found else
                         f"{statistics.median(found):.4g} {unit} ({min(found):.4g} to {max(found):.4g})")
        lines.append(f"| {metric} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--title", default="comparison")
    parser.add_argument("--out", metavar="FILE.json")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    sides = {}
    for side in args.sides:
        name, equals, command = side.partition("=")
        if not (name and equals and command.strip()):
            parser.error(f"expected NAME=COMMAND, got {side!r}")
        if name in sides:
            parser.error(f"two sides are named {name!r}")
        sides[name] = command

    load = os.getloadavg()[0]
    values = {}  # (metric, unit) -> name -> numbers
    for number in range(1, args.rounds + 1):
        for name, command in sides.items():
            begun = time.monotonic()
            for one in measure(name, command):
                values.setdefault((one["metric"], one["unit"]), {}).setdefault(name, []).append(one["value"])
            print(f"round {number} of {args.rounds}: {name}, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    print(f"{args.title}: {processor()}, {len(os.sched_getaffinity(0))} processors, {args.rounds} rounds, "
          f"load before {load:.2f}\n\n{table(list(sides), values)}")
    if args.out:
        document = {"title": args.title, "date": time.strftime("%Y-%m-%d"), "processor": processor(),
                    "processors": len(os.sched_getaffinity(0)), "load_before": load, "rounds": args.rounds,
                    "commands": sides,
                    "values": [{"metric": metric, "unit": unit, "sides": found}
                               for (metric, unit), found in values.items()]}
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
