#!/usr/bin/env python3
"""Compares `triptych bench --serve` with another load generator on the same load, in turn.

Usage: bench/compare_load.py --url http://127.0.0.1:8000|paced [--rounds 5] [--triptych build/release/triptych] -- python3 serve_load.py [FLAGS]

The other one is run first against a recorder, which writes down its requests as a trace; then both drive the server by turns with the same
bodies' pictures, texts and lengths. It must take --url, print JSON lines {"metric", "value"} as serve_load.py does, and be a closed loop of
--clients. Medians over the rounds are shown. `--url paced` is a server of this script's own, which computes nothing: the first token comes after
100 ms, each further one 20 ms later. There the true times are known, whatever else the machine does.
"""
import argparse
import base64
import http.server
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The other's metric, and where it stands in triptych's JSON with the factor to its unit.
METRICS = {
    "serve_requests_per_s": (("requests_per_s",), 1), "serve_answer_tps": (("answer_tokens_per_s",), 1),
    "serve_ttft_p50_s": (("latencies", "first_token_ms", "p50"), 1e-3), "serve_gap_p50_s": (("latencies", "inter_token_ms", "p50"), 1e-3),
    "serve_e2e_p50_s": (("latencies", "end_to_end_ms", "p50"), 1e-3), "serve_ttft_p99_s": (("latencies", "first_token_ms", "p99"), 1e-3),
    "serve_e2e_p99_s": (("latencies", "end_to_end_ms", "p99"), 1e-3),
}


def record(command, folder):
    """The trace of what `command` sends."""
    bodies, lock = [], threading.Lock()

    class Recorder(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):  # noqa: N802, the library's name
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                bodies.append(body)
            reply = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(reply)))
            self.send_header("Connection", "close")  # some clients wait for the end of an answer they have whole
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    subprocess.run([*command, "--url", f"http://127.0.0.1:{server.server_port}"], check=True, stdout=subprocess.DEVNULL)
    server.shutdown()
    lines = []
    for i, body in enumerate(bodies):
        line = {"answer_tokens": body["max_tokens"], "pictures": []}
        for part in body["messages"][0]["content"]:
            if part["type"] == "text":
                line["prompt"] = part["text"]
            else:
                name = f"{i}_{len(line['pictures'])}.png"
                (folder / name).write_bytes(base64.b64decode(part["image_url"]["url"].split(",", 1)[1]))
                line["pictures"].append({"file": name})
        lines.append(json.dumps(line))
    trace = folder / "trace.jsonl"
    trace.write_text("\n".join(lines) + "\n")
    return trace


class Paced(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):  # noqa: N802, the library's name
        begin = time.monotonic()
        n = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(n):
            time.sleep(max(0.0, begin + 0.1 + 0.02 * i - time.monotonic()))
            self.chunk('{"choices":[{"delta":{"content":"x"}}]}')
        self.chunk(json.dumps({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": n}}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        line = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def do_GET(self):  # noqa: N802
        body = b'{"data":[{"id":"paced"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--triptych", default=str(ROOT / "build/release/triptych"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    clients = command[command.index("--clients") + 1]
    if arguments.url == "paced":
        paced = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Paced)
        threading.Thread(target=paced.serve_forever, daemon=True).start()
        arguments.url = f"http://127.0.0.1:{paced.server_port}"
    theirs, ours = {name: [] for name in METRICS}, {name: [] for name in METRICS}
    with tempfile.TemporaryDirectory() as folder:
        trace = record(command, pathlib.Path(folder))
        for _ in range(arguments.rounds):
            said = subprocess.run([*command, "--url", arguments.url], check=True, capture_output=True, text=True).stdout
            for line in map(json.loads, said.splitlines()):
                if line["metric"] in theirs:
                    theirs[line["metric"]].append(line["value"])
            said = subprocess.run([arguments.triptych, "bench", "--serve", arguments.url, "--serve-trace", str(trace), "--clients", clients,
                                   "--json", "-q"], check=True, capture_output=True, text=True).stdout
            report = json.loads(said)
            for name, (path, factor) in METRICS.items():
                value = report
                for key in path:
                    value = value[key]
                ours[name].append(factor * value)
    print("| | other | triptych bench --serve | difference |\n|---|---|---|---|")
    for name in METRICS:
        a, b = statistics.median(theirs[name]), statistics.median(ours[name])
        print(f"| {name} | {a:.5g} | {b:.5g} | {100 * (b / a - 1):+.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
