#!/usr/bin/env python3
"""Runs a configured build's compiler over sources without making code, for the errors and warnings alone.

    tools/check_syntax.py BUILD FOLDER...    the sources of these folders, with the commands of BUILD/compile_commands.json
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def check(command):
    arguments = shlex.split(command["command"])
    output = arguments.index("-o")
    del arguments[output : output + 2]
    result = subprocess.run([*arguments, "-fsyntax-only"], cwd=command["directory"], stderr=subprocess.PIPE, text=True)
    return result.returncode, result.stderr


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    root = pathlib.Path(__file__).resolve().parent.parent
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    chosen = []
    for folder in sys.argv[2:]:
        inside = [c for c in commands if (root / folder).resolve() in pathlib.Path(c["file"]).resolve().parents]
        if not inside:
            sys.exit(f"check_syntax: {sys.argv[1]} compiles nothing in {folder}")
        chosen += inside
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, chosen))
    for _, text in results:
        sys.stderr.write(text)
    failed = sum(status != 0 for status, _ in results)
    print(f"check_syntax: {len(chosen)} sources, {failed} with errors")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
