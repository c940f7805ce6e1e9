#!/usr/bin/env python3
"""Checks that the pages agree with the tree.

* Every relative link of a Markdown page, and every path in backticks that begins with a folder of the repository, exists.
* README shows examples/ask.cc as it is.
* docs/serving.md has every flag of `triptych serve` and every route.
* README's table of packages and the lists in scripts/setup.sh hold the same names.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "abi", "scripts", "tools", "tests", "docs", "assets", "examples", "cmake", "bench", "deploy", ".ci")


def tracked_pages():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           check=True, capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def dead_links(page):
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        target = match.group(1)
        if "://" in target or target.startswith("mailto:"):
            continue
        if not (page.parent / target).exists():
            yield f"{page.relative_to(ROOT)}: link to {target}, which does not exist"
    # Patterns (<name>, *, {a,b}, ...) are not paths.
    for match in re.finditer(r"`((?:%s)/[A-Za-z0-9_./-]+)`" % "|".join(map(re.escape, FOLDERS)), text):
        if not (ROOT / match.group(1).rstrip("/")).exists():
            yield f"{page.relative_to(ROOT)}: names {match.group(1)}, which does not exist"


def package_differences():
    listed = subprocess.run([str(ROOT / "scripts/setup.sh"), "--dev", "--aarch64", "--list"], check=True, capture_output=True,
                            text=True).stdout.split()
    table = []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 2 and cells[-1] in ("build", "dev", "aarch64"):
            table += re.findall(r"`([a-z0-9][a-z0-9+.-]+)`", cells[0])
    for name in sorted(set(listed) - set(table)):
        yield f"README.md: the table of packages lacks {name}, which scripts/setup.sh installs"
    for name in sorted(set(table) - set(listed)):
        yield f"README.md: the table of packages has {name}, which scripts/setup.sh does not install"


def example_difference():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = (ROOT / "examples/ask.cc").read_text(encoding="utf-8")
    if "```cpp\n" + example + "```" not in readme:
        yield "README.md: the library example differs from examples/ask.cc"


def serving_differences():
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    sources = "".join((ROOT / "src/cli" / name).read_text(encoding="utf-8") for name in ("cmd_serve.cc", "prefix_cache_flags.cc"))
    flags = re.findall(r'"(--[a-z][a-z-]*)[",]', sources)
    for flag in flags:
        if f"`{flag}`" not in page:
            yield f"docs/serving.md: lacks {flag} of triptych serve"
    for flag in re.findall(r"^\| (`--.*?) \|", page, re.M):
        for name in re.findall(r"`(--[a-z-]+)`", flag):
            if name not in flags:
                yield f"docs/serving.md: has {name}, which triptych serve does not"
    for method, path in re.findall(r'\{"(GET|POST)", "([^"]+)", &Service', (ROOT / "src/server/service.cc").read_text(encoding="utf-8")):
        if f"`{method} {path}" not in page:
            yield f"docs/serving.md: lacks the route {method} {path}"


def main():
    pages = tracked_pages()
    faults = [fault for page in pages for fault in dead_links(page)]
    faults += list(package_differences()) + list(example_difference()) + list(serving_differences())
    for fault in faults:
        print(fault)
    print(f"check_docs: {len(pages)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
