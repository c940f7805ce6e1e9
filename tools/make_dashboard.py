#!/usr/bin/env python3
"""Writes deploy/grafana/dashboards/triptych.json, the Grafana dashboard over the metrics of `triptych serve`.

Usage: tools/make_dashboard.py          the panels are listed below; tools/check_deploy.py compares the file with what this would write.
"""
import json
import pathlib

TARGET = pathlib.Path(__file__).resolve().parent.parent / "deploy/grafana/dashboards/triptych.json"
P = "triptych_"
SELECT = '{instance=~"$instance"}'


def rate(name):
    return f"sum(rate({P}{name}{SELECT}[$__rate_interval]))"


def gauge(name):
    return f"sum({P}{name}{SELECT})"


def quantile(q, name):
    return f"histogram_quantile({q}, sum by (le) (rate({P}{name}_bucket{SELECT}[$__rate_interval])))"


def quantiles(name):
    return [(quantile(q, name), label) for q, label in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))]


def mean(name):
    return f"{rate(name + '_sum')} / {rate(name + '_count')}"


# title, unit, [(expression, legend)], what it says
ROWS = [
    ("Requests", [
        ("Answers a second", "reqps", [(f"sum by (finished_reason) (rate({P}request_success_total{SELECT}[$__rate_interval]))",
                                        "{{finished_reason}}")], "Answers that ended, by how they did."),
        ("HTTP a second", "reqps", [(f"sum by (route, status) (rate({P}http_requests_total{SELECT}[$__rate_interval]))",
                                     "{{route}} {{status}}")], "429 and 503 tell clients to come later."),
        ("Requests at once", "short", [(gauge("num_requests_running"), "running"), (gauge("num_requests_waiting"), "waiting"),
                                       (gauge("num_requests_preparing"), "preparing")],
         "Waiting for a place in the batch; preparing: pictures are decoded and resized."),
    ]),
    ("Times", [
        ("Time to first token", "s", quantiles("time_to_first_token_seconds"), "From the whole request to its first token."),
        ("Time between tokens", "s", quantiles("inter_token_latency_seconds"), "Between two tokens of an answer."),
        ("End to end", "s", quantiles("e2e_request_latency_seconds"), "From the whole request to the end of its answer."),
    ]),
    ("Stages", [
        ("Stages of a request, mean", "s", [(mean("request_queue_time_seconds"), "waiting"), (mean("mm_media_decode_latency_seconds"), "image decode"),
                                            (mean("request_prepare_time_seconds"), "prepare"), (mean("mm_encoder_latency_seconds"), "tower"),
                                            (mean("request_prefill_time_seconds"), "prefill"),
                                            (mean("request_decode_time_seconds"), "decode")], "What requests spend their time on."),
        ("Waiting", "s", quantiles("request_queue_time_seconds"), "From a prepared request to its first step."),
        ("Tower", "s", quantiles("mm_encoder_latency_seconds"), "Tower and projector for the pictures of one request."),
    ]),
    ("Tokens and pictures", [
        ("Tokens a second", "short", [(rate("prompt_tokens_total"), "of prompts"), (rate("image_tokens_total"), "of pictures"),
                                      (rate("prompt_tokens_cached_total"), "found in the prefix cache"),
                                      (rate("generation_tokens_total"), "of answers")], "Pictures are a part of prompts."),
        ("Pictures a second", "short", [(rate("images_total"), "decoded"), (rate("images_encoded_total"), "seen by the tower")],
         "The difference was found in the cache of embeddings."),
        ("Steps", "percentunit", [(rate("step_seconds_total"), "time in steps"), (f"{rate('num_preemptions_total')}", "preemptions a second")],
         "Share of the time in which the engine works."),
    ]),
    ("Network and memory", [
        ("Connections", "short", [(gauge("http_connections"), "open"), (rate("http_connections_total"), "accepted a second"),
                                  (rate("http_connections_refused_total"), "refused a second")], "Refused: over --max-connections."),
        ("Slow readers a second", "short", [(rate("slow_readers_total"), "dropped")], "Clients that did not read their answers."),
        ("Caches", "percentunit", [(f"max({P}kv_cache_usage_perc{SELECT})", "key/value blocks in use"),
                                   (f"{rate('mm_cache_hits_total')} / {rate('mm_cache_queries_total')}", "pictures found in the visual cache"),
                                   (f"{rate('prefix_cache_hits_total')} / {rate('prefix_cache_queries_total')}", "prompt tokens found")],
         "Shares; of a cache that is off there is none."),
    ]),
]


def dashboard():
    panels, y = [], 0
    for row, entries in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        for column, (title, unit, targets, text) in enumerate(entries):
            panels.append({
                "id": len(panels) + 1, "type": "timeseries", "title": title, "description": text,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": 8 * column, "y": y + 1, "w": 8, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
                "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend,
                             "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                            for i, (expression, legend) in enumerate(targets)],
            })
        y += 9
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "hide": 0, "refresh": 1},
        {"name": "instance", "type": "query", "label": "Instance", "datasource": {"type": "prometheus", "uid": "${datasource}"},
         "query": {"query": f"label_values({P}build_info, instance)", "refId": "instance"}, "includeAll": True, "multi": True,
         "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2},
    ]
    return {"uid": "triptych", "title": "Triptych", "tags": ["triptych"], "schemaVersion": 39, "version": 1, "editable": True,
            "timezone": "browser", "refresh": "10s", "time": {"from": "now-30m", "to": "now"}, "graphTooltip": 1,
            "templating": {"list": variables}, "annotations": {"list": []}, "links": [], "panels": panels}


def text():
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
