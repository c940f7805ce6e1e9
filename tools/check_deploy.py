#!/usr/bin/env python3
"""Checks that what deploy/ says of the program is so.

* Every metric that the dashboard, the alerts and the autoscaler name is written by src/server.
* Every flag that the container, the compose file, the manifests and the unit give is a flag of `triptych serve`.
* The paths that probes ask for are routes.
* The dashboard is what tools/make_dashboard.py writes; the container installs what exists.
Only Python's standard library is used. What linters say of the files: docs/deployment.md.
"""
import json
import pathlib
import re
import sys

import make_dashboard

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def read(path):
    return path.read_text(encoding="utf-8")


def without_comments(text):
    return re.sub(r"(?m)^\s*#.*$", "", text)


def metrics_of_source():
    """(all metrics that /metrics has, the histograms among them): written with the prefix, or given to the registry without it."""
    sources = {path.name: read(path) for path in sorted((ROOT / "src/server").glob("*.cc")) if not path.stem.endswith("_test")}
    if '"engine/engine_metrics.h"' in sources["metrics.cc"]:  # then the engine's are among them
        sources["engine_metrics.cc"] = read(ROOT / "src/engine/engine_metrics.cc")
    text = "".join(sources.values())
    metrics = set(re.findall(r'"(triptych_[a-z0-9_]+)"', text))
    histograms = set(re.findall(r'histogram\(\s*"(triptych_\w+)"', text))
    for name in ("metrics.cc", "engine_metrics.cc"):
        registered = re.findall(r'(\w+)\(\s*(?:id_of\(\s*)?"([a-z][a-z0-9_]+)"', sources.get(name, ""))
        metrics |= {"triptych_" + metric for _, metric in registered}
        histograms |= {"triptych_" + metric for call, metric in registered if call in ("histogram", "id_of")}
    return metrics, histograms


def metric_differences():
    metrics, histograms = metrics_of_source()
    if len(metrics) < 20:
        yield f"src/server: {len(metrics)} metrics were found, so this script does not know how they are written any more"
    for path in sorted(DEPLOY.rglob("*")):
        if path.suffix not in (".json", ".yaml"):
            continue
        for name in sorted(set(re.findall(r"\btriptych_[a-z0-9_]+", without_comments(read(path))))):
            base = name if name in metrics else SUFFIX.sub("", name)
            if base not in metrics or (base != name and base not in histograms):
                yield f"{path.relative_to(ROOT)}: names {name}, which no metric of src/server is"


def flag_differences():
    sources = "".join(read(path) for path in sorted((ROOT / "src/cli").glob("*.cc")))
    known = set(re.findall(r'[",](--[a-z][a-z-]+)(?=[",])', sources))
    for name in ("Containerfile", "compose.yaml", "kubernetes/triptych.yaml", "triptych.service"):
        text = without_comments(read(DEPLOY / name))
        if name == "compose.yaml":
            text = text.split("\n  prometheus:")[0]
        commands = re.findall(r"(?ms)^(?:CMD|ENTRYPOINT) \[.*?\]|(?:args|command): \[(?:.(?!\[))*?\]$|^ExecStart=[^\n]*", text)
        flags = [flag for command in commands for flag in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", command)]
        if not flags:
            yield f"deploy/{name}: no flags were found, so this script does not know how it starts the program any more"
        for flag in flags:
            if flag not in known:
                yield f"deploy/{name}: gives {flag}, which is no flag of triptych serve"


def route_differences():
    routes = set(re.findall(r'\{"GET", "([^"]+)"', read(ROOT / "src/server/service.cc")))
    for name in ("Containerfile", "kubernetes/triptych.yaml"):
        text = read(DEPLOY / name)
        paths = re.findall(r"httpGet: \{path: ([^,}]+)", text) + re.findall(r"http://127\.0\.0\.1:\d+(/[a-z]+)", text)
        paths += re.findall(r"prometheus\.io/path: ([^,}\s]+)", text)
        if not paths:
            yield f"deploy/{name}: asks for no path"
        for path in paths:
            if path not in routes:
                yield f"deploy/{name}: asks for {path}, which is no route"


def dashboard_differences():
    path = DEPLOY / "grafana/dashboards/triptych.json"
    if read(path) != make_dashboard.text():
        yield f"{path.relative_to(ROOT)}: not what tools/make_dashboard.py writes; run it"
    ids = [panel["id"] for panel in json.loads(read(path))["panels"]]
    if len(ids) != len(set(ids)):
        yield f"{path.relative_to(ROOT)}: two panels have one id"


def mounted_files():
    for source in re.findall(r"- (\./[^:\s]+):", read(DEPLOY / "compose.yaml")):
        if not (DEPLOY / source).exists():
            yield f"deploy/compose.yaml: mounts {source}, which does not exist"
    for source in re.findall(r"^COPY (?!--)(\S+) ", read(DEPLOY / "Containerfile"), re.M):
        if not (ROOT / source).exists():
            yield f"deploy/Containerfile: copies {source}, which does not exist"


def main():
    faults = [fault for check in (metric_differences, flag_differences, route_differences, dashboard_differences, mounted_files)
              for fault in check()]
    for fault in faults:
        print(fault)
    print(f"check_deploy: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
