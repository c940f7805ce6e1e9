#!/usr/bin/env python3
"""Does to `triptych serve` what clients and systems do, with the model that ships, and says what became of it.

Usage: tools/serve_faults.py [--triptych build/release/triptych] [CASE...]      without CASE all of them, in minutes

Each case starts a server of its own, does harm, and then asks for an answer that must be, bit for bit, the one from before. Exit code 1 if
a case failed. Prints a table for docs/serving.md; sizes are resident memory of the server (VmRSS). The standard library is all it needs. Cheap
cases are in tests/e2e/serve_faults_test.cc too; a full disk under the visual cache is in tests/e2e/visual_cache_test.cc.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "assets/models/scenes-llava"


class Fault(Exception):
    """What a case found wrong."""


def need(condition, text):
    if not condition:
        raise Fault(text)


class Server:
    def __init__(self, program, *flags):
        self.process = subprocess.Popen([program, "serve", str(MODEL), "--port", "0", "--json", "-q", *flags], stdout=subprocess.PIPE, text=True)
        self.port = int(json.loads(self.process.stdout.readline())["endpoints"][0].rsplit(":", 1)[1])
        self.before = self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def request(self, method, path, body=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read().decode()
        finally:
            connection.close()

    def answer(self):
        status, _, text = self.request("POST", "/v1/chat/completions", chat(24))
        need(status == 200, f"a good request: {status} {text[:200]}")
        return json.loads(text)["choices"][0]["message"]["content"]

    def metric(self, name):
        for line in self.request("GET", "/metrics")[2].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise Fault(f"no metric {name}")

    def resident_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def settle(self):
        """Nothing runs or waits any more, and the next answer is the one from before."""
        end = time.monotonic() + 120
        while self.metric("triptych_num_requests_running") + self.metric("triptych_num_requests_waiting") > 0:
            need(time.monotonic() < end, "requests that nobody waits for still run after 120 s")
            time.sleep(0.05)
        need(self.answer() == self.before, "another answer than before")

    def connect(self, receive_bytes=None):
        one = socket.socket()
        if receive_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        one.settimeout(120)
        one.connect(("127.0.0.1", self.port))
        return one


def chat(n, stream=False):
    return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": stream}


def raw(body, path="/v1/chat/completions"):
    text = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def cancelled(program):
    """1,000 streams are cancelled, half of them before the first token."""
    with Server(program) as server:
        for i in range(50):
            cancel_one(server, i)
        server.settle()
        first = server.resident_kib()
        for i in range(1000):
            cancel_one(server, i)
        server.settle()
        grown = server.resident_kib() - first
        need(grown < 16 * 1024, f"memory grew by {grown} KiB")
        return f"nothing runs on; memory {grown:+} KiB"


def cancel_one(server, i):
    one = server.connect()
    one.sendall(raw(chat(300, True)))
    if i % 2:
        one.recv(64)
    one.close()


def half_closed(program):
    """200 clients close their sending half, in the request or behind it."""
    with Server(program) as server:
        request = raw(chat(300, True))
        for i in range(200):
            one = server.connect()
            one.sendall(request[: len(request) if i % 2 else 1 + i % len(request)])
            one.shutdown(socket.SHUT_WR)
            while one.recv(65536):
                pass
            one.close()
        server.settle()
        return "each connection is closed, its request cancelled"


def stopped(program):
    """A client gets SIGSTOP in mid-stream while others ask."""
    code = ("import socket,sys; s=socket.create_connection(('127.0.0.1',int(sys.argv[1]))); s.sendall(bytes.fromhex(sys.argv[2]))\n"
            "b=s.recv(100); print('begun',flush=True)\nwhile b'[DONE]' not in b:\n n=s.recv(65536)\n if not n: sys.exit(1)\n b=b[-20:]+n\n")
    with Server(program) as server:
        child = subprocess.Popen([sys.executable, "-c", code, str(server.port), raw(chat(200, True)).hex()], stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        for _ in range(20):
            need(server.answer() == server.before, "another answer beside a stopped client")
        child.send_signal(signal.SIGCONT)
        need(child.wait(120) == 0, "the client that went on did not get its end")
        server.settle()
        return "20 others answered meanwhile; it got the rest when it went on"


def no_descriptors(program):
    """The server has 16 descriptors more; 200 clients come."""
    with Server(program) as server:
        usual = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        n_open = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (n_open + 16, usual[1]))
        waiting = [server.connect() for _ in range(200)]
        waiting[0].sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        need(waiting[0].recv(100).startswith(b"HTTP/1.1 200"), "a connection that was there is not served")
        for one in waiting:
            one.close()
        server.settle()
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, usual)
        return "those within are served, the others when descriptors are free"


def slow_readers(program):
    """1,000 clients ask and do not read."""
    with Server(program, "--max-queue", "2000") as server:
        request = raw(chat(40, True))
        slow = []
        for _ in range(1000):
            one = server.connect(2048)
            one.sendall(request)
            slow.append(one)
        begin = time.monotonic()
        times = []
        for _ in range(20):
            start = time.monotonic()
            need(server.request("GET", "/health")[0] == 200, "/health is not 200")
            times.append(time.monotonic() - start)
        need(server.answer() == server.before, "another answer beside slow readers")
        served = time.monotonic() - begin
        memory = server.resident_kib()
        for one in slow:
            one.close()
        server.settle()
        return f"/health {1e3 * max(times):.0f} ms at most; one more answer after {served:.1f} s behind them; {memory // 1024} MiB"


def idle(program):
    """10,000 idle connections, of which each has had one answer."""
    with Server(program, "--idle-timeout", "600") as server:
        def open_all(n):
            out = []
            for _ in range(n):
                one = server.connect()
                one.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
                need(one.recv(1000).startswith(b"HTTP/1.1 200"), "/live is not 200")
                out.append(one)
            return out
        for one in open_all(500):  # what the allocator keeps from the first ones does not count
            one.close()
        server.settle()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        n = min(10000, limit - 200)
        first = server.resident_kib()
        all_of_them = open_all(n)
        each = (server.resident_kib() - first) / n
        need(server.answer() == server.before, "another answer beside idle connections")
        need(each <= 16, f"an idle connection takes {each:.1f} KiB")
        for one in all_of_them:
            one.close()
        server.settle()
        return f"{n:,} connections, {each:.1f} KiB each"


def overload(program):
    """200 clients for 20 s on 8 places and a queue of 32; one asks for /health all the while."""
    with Server(program, "--max-num-seqs", "8", "--max-queue", "32") as server:
        statuses, faults, health = collections.Counter(), [], []
        end = time.monotonic() + 20

        def ask():
            while time.monotonic() < end:
                try:
                    status, headers, text = server.request("POST", "/v1/chat/completions", chat(32))
                    statuses[status] += 1
                    if status in (429, 503):
                        if "Retry-After" not in headers:
                            faults.append(f"{status} without Retry-After")
                        time.sleep(0.05)
                    elif status != 200 or not json.loads(text)["choices"][0]["message"]["content"]:
                        faults.append(f"{status}: {text[:100]}")
                except OSError as failure:
                    faults.append(repr(failure))

        # In a process of its own: 200 threads of this one would be measured, not the server.
        probe = subprocess.Popen([sys.executable, "-c",
                                  "import http.client,sys,time\nend=time.monotonic()+18\nwhile time.monotonic()<end:\n"
                                  " b=time.monotonic(); c=http.client.HTTPConnection('127.0.0.1',int(sys.argv[1])); c.request('GET','/health')\n"
                                  " s=c.getresponse().status; print(s,time.monotonic()-b,flush=True); c.close(); time.sleep(0.02)\n", str(server.port)],
                                 stdout=subprocess.PIPE, text=True)
        threads = [threading.Thread(target=ask) for _ in range(200)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for line in probe.communicate()[0].splitlines():
            status, seconds = line.split()
            need(status == "200", f"/health is {status}")
            health.append(float(seconds))
        health.sort()
        need(not faults, f"{len(faults)} faults, the first: {faults[:1]}")
        need(set(statuses) <= {200, 429, 503}, f"statuses {dict(statuses)}")
        server.settle()
        p99 = health[int(0.99 * len(health))]
        return (", ".join(f"{n:,} times {status}" for status, n in sorted(statuses.items()))
                + f"; /health p99 {1e3 * p99:.0f} ms of {len(health)}; {server.resident_kib() // 1024} MiB")


CASES = {case.__name__: case for case in (cancelled, half_closed, stopped, no_descriptors, slow_readers, idle, overload)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triptych", default=str(ROOT / "build/release/triptych"))
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    failed = 0
    print("| case | what came of it |\n|---|---|")
    for name in arguments.cases or CASES:
        if name not in CASES:
            parser.error(f"unknown case {name}: expected {', '.join(CASES)}")
        try:
            result = CASES[name](arguments.triptych)
        except (Fault, OSError) as fault:
            failed += 1
            result = f"**failed**: {fault}"
        print(f"| {CASES[name].__doc__.rstrip('.')} | {result} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
