#!/usr/bin/env python3
"""The clients and the datagrams of benches/views.

  views_load.py watch PORT --clients N --stalled N
  views_load.py scan PORT
  views_load.py probe ADDRESS PORT --rate N --payload N --for SECONDS
  views_load.py times PORT…
  views_load.py spread --classes N --rate N --for SECONDS

`watch` opens connections to /events of `altq web` at 127.0.0.1, of which `--stalled` read nothing
but the first line, and asks for /metrics once a second. For a line on its standard input it prints
a line of JSON: events read, answers of /metrics, connections that were opened again.

`scan` asks what nobody should. It reads commands: `wrong` asks each wrong request once, `slow N`
sends N requests a byte at a time and N halves of requests, `many N` opens N connections. For each
it prints a line of JSON: how many were asked, what was answered, and which answers are wrong.

`probe` sends datagrams with the time in them; `times` prints, for a line on its standard input, how
long those took that have come since the last one, in ns, by port (SO_TIMESTAMPNS).

`spread` sends to the address of each class of a policy with many classes (service_parts.many), in
turn.
"""
import argparse
import contextlib
import ctypes
import http.client
import json
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time

# From asm-generic/socket.h and linux/prctl.h, which Python's modules do not have.
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
PR_SET_TIMERSLACK = 29
EVENT = b"\nevent: "


def on_time():
    """Timers fire when they are due, instead of up to 50 us later."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def connected(port, buffer=None):
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(10)
    made.connect(("127.0.0.1", port))
    return made


class Watcher:
    """A client of /events."""

    def __init__(self, port, stalled):
        self.port, self.stalled = port, stalled
        self.events = self.bytes = self.again = 0
        self.open()

    def open(self):
        # What a stalled client does not read fills a small buffer, and then the server's.
        self.socket = connected(self.port, 4096 if self.stalled else None)
        self.socket.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = self.socket.recv(12, socket.MSG_WAITALL)
        if head != b"HTTP/1.1 200":
            raise OSError(f"/events was answered with {head!r}")
        self.tail = b""
        self.socket.setblocking(False)

    def read(self):
        """Reads what has come."""
        try:
            while data := self.socket.recv(1 << 16):
                self.bytes += len(data)
                text = self.tail + data
                self.events += text.count(EVENT)
                self.tail = text[-(len(EVENT) - 1):]
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self.reopen()

    def reopen(self):
        """The server has closed the connection: another one takes its place."""
        self.socket.close()
        self.again += 1
        self.open()


class Metrics(threading.Thread):
    """Asks for /metrics once a second."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.answers, self.bytes, self.failed = port, 0, 0, []

    def run(self):
        due = time.monotonic()
        while True:
            try:
                asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                asked.request("GET", "/metrics")
                answer = asked.getresponse()
                self.bytes = len(answer.read())
                if answer.status != 200:
                    raise OSError(f"/metrics was answered with {answer.status}")
                self.answers += 1
                asked.close()
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(str(error))
            due += 1
            time.sleep(max(0.0, due - time.monotonic()))


def watch(arguments):
    watchers = [Watcher(arguments.port, at < arguments.stalled) for at in range(arguments.clients)]
    metrics = Metrics(arguments.port)
    metrics.start()
    print("ready", flush=True)
    while True:
        poll, by_number = select.poll(), {}
        poll.register(sys.stdin, select.POLLIN)
        for watcher in watchers:
            # Who stalls only learns that the connection was closed.
            poll.register(watcher.socket, select.POLLRDHUP if watcher.stalled else select.POLLIN)
            by_number[watcher.socket.fileno()] = watcher
        for number, _ in poll.poll():
            if watcher := by_number.get(number):
                watcher.reopen() if watcher.stalled else watcher.read()
            elif not sys.stdin.readline():
                return
            else:
                reading = [watcher for watcher in watchers if not watcher.stalled]
                print(json.dumps({
                    "events": [watcher.events for watcher in reading], "bytes": sum(one.bytes for one in reading),
                    "again": sum(watcher.again for watcher in watchers), "answers": metrics.answers,
                    "metrics_bytes": metrics.bytes, "failed": metrics.failed}), flush=True)


# Requests that are wrong, and the status that RFC 9110 has for each.
LINE = "Host: localhost\r\n\r\n"
WRONG = [
    (f"GET /x HTTP/1.1\r\n{LINE}", 404), (f"GET /../etc/passwd HTTP/1.1\r\n{LINE}", 404),
    (f"GET /%00 HTTP/1.1\r\n{LINE}", 404), (f"GET //events HTTP/1.1\r\n{LINE}", 404),
    (f"GET /stat.json/ HTTP/1.1\r\n{LINE}", 404), (f"GET /history.json?link=none HTTP/1.1\r\n{LINE}", 404),
    (f"GET /history.json?class=none HTTP/1.1\r\n{LINE}", 404),
    (f"GET /history.json?from=x HTTP/1.1\r\n{LINE}", 400),
    (f"POST / HTTP/1.1\r\nContent-Length: 3\r\n{LINE}abc", 405), (f"PUT /metrics HTTP/1.1\r\n{LINE}", 405),
    (f"DELETE /events HTTP/1.1\r\n{LINE}", 405), (f"TRACE / HTTP/1.1\r\n{LINE}", 405),
    (f"OPTIONS * HTTP/1.1\r\n{LINE}", 405),
    ("GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421), ("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", 421),
    ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.example\r\n\r\n", 421), ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400), (f"GET http://localhost/ HTTP/1.1\r\n{LINE}", 400),
    (f"GET /stat.json HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n{LINE}", 403),
    ("nonsense\r\n\r\n", 400), ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n" + "X: y\r\n" * 99 + LINE, 431),
    # So long a head may find its connection closed before it was sent whole: 0 is no answer.
    (f"GET / HTTP/1.1\r\nX: {'x' * 1_000_000}\r\n{LINE}", 431), (f"GET /{'x' * 100_000} HTTP/1.1\r\n{LINE}", 431),
]


def status(made):
    """The status of an answer: 0 if the connection was closed without one."""
    answer = b""
    with contextlib.suppress(OSError):
        while part := made.recv(1 << 16):
            answer += part
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def wrong(port):
    asked, unexpected = 0, []
    for text, expected in WRONG:
        asked += 1
        with contextlib.closing(connected(port)) as made:
            with contextlib.suppress(OSError):
                made.sendall(text.encode("latin-1"))
            found = status(made)
        if found != expected and not (found == 0 and expected == 431):
            unexpected.append(f"{text[:50]!r}: {found}, not {expected}")
    return {"asked": asked, "answers": asked, "unexpected": unexpected}


def slow(port, count):
    """Requests that come a byte at a time, and halves of requests. Each is told that it is too late,
    or closed to make room; none may be answered as if it were whole."""
    halves = [connected(port) for _ in range(count)]
    for made in halves:
        with contextlib.suppress(OSError):
            made.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
    slowly = [connected(port) for _ in range(count)]
    for _ in range(70):
        for made in slowly:
            with contextlib.suppress(OSError):
                made.send(b"G")
        time.sleep(0.1)
    found = [status(made) for made in halves + slowly]
    for made in halves + slowly:
        made.close()
    # 400: so many letters are no method.
    return {"asked": 2 * count, "answers": sum(map(bool, found)),
            "unexpected": [f"a slow request: {code}" for code in found if code not in (0, 400, 405, 408, 431)]}


def many(port, count):
    """Connections that ask nothing, held open together; and one that asks beside them."""
    opened, refused = [], 0
    for _ in range(count):
        try:
            opened.append(connected(port))
        except OSError:
            refused += 1
    unexpected, took = [], 0.0
    for _ in range(20):
        begun = time.monotonic()
        with contextlib.closing(connected(port)) as made:
            made.sendall(f"GET /metrics HTTP/1.1\r\n{LINE}".encode())
            if (found := status(made)) != 200:
                unexpected.append(f"/metrics beside {count} connections: {found}")
        took = max(took, time.monotonic() - begun)
    print(json.dumps({"held": len(opened)}), flush=True)
    # The other side looks at the server meanwhile.
    sys.stdin.readline()
    for made in opened:
        made.close()
    return {"asked": count, "answers": len(opened), "refused": refused, "beside_s": took, "unexpected": unexpected}


def scan(arguments):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print("ready", flush=True)
    for line in sys.stdin:
        word, *count = line.split()
        ask = {"wrong": wrong, "slow": slow, "many": many}[word]
        print(json.dumps(ask(arguments.port, *map(int, count))), flush=True)


def probe(arguments):
    family = socket.AF_INET6 if ":" in arguments.address else socket.AF_INET
    out = socket.socket(family, socket.SOCK_DGRAM)
    out.connect((arguments.address, arguments.port))
    on_time()
    rest, stop, sent = bytes(arguments.payload - 8), [], 0
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    print("ready", flush=True)
    begun = time.monotonic()
    while not stop and (now := time.monotonic()) < begun + arguments.seconds:
        due = begun + sent / arguments.rate
        if due > now:
            time.sleep(due - now)
        with contextlib.suppress(OSError):
            out.send(struct.pack("!Q", time.monotonic_ns()) + rest)
        sent += 1
    print(json.dumps({"sent": sent}))


def times(arguments):
    got, lock = {port: [] for port in arguments.ports}, threading.Lock()
    offset = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()

    def receive(port):
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind(("::", port))
        bound.release()
        while True:
            data, control, _, _ = sock.recvmsg(64, socket.CMSG_SPACE(16))
            for level, kind, value in control:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, nanos = struct.unpack("qq", value)
                    with lock:
                        got[port].append(seconds * 10**9 + nanos - offset - struct.unpack("!Q", data[:8])[0])

    bound = threading.Semaphore(0)
    for port in arguments.ports:
        threading.Thread(target=receive, args=(port,), daemon=True).start()
        bound.acquire()
    print("ready", flush=True)
    for _ in sys.stdin:
        with lock:
            found = {port: list(all_times) for port, all_times in got.items()}
            for all_times in got.values():
                all_times.clear()
        print(json.dumps(found), flush=True)


def spread(arguments):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    places = [(f"10.{64 + at // 65536}.{at // 256 % 256}.{at % 256}", 9) for at in range(arguments.classes)]
    on_time()
    data, sent, stop = bytes(172), 0, []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    print("ready", flush=True)
    begun = time.monotonic()
    while not stop and (now := time.monotonic()) < begun + arguments.seconds:
        # What is due, a hundred at a time.
        due = int((now - begun) * arguments.rate) - sent
        for _ in range(min(due, 100)):
            with contextlib.suppress(OSError):
                out.sendto(data, places[sent % len(places)])
            sent += 1
        if due < 100:
            time.sleep(0.001)
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - begun}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("watch")
    command.add_argument("port", type=int)
    command.add_argument("--clients", type=int, default=16)
    command.add_argument("--stalled", type=int, default=8)
    command.set_defaults(work=watch)
    command = commands.add_parser("scan")
    command.add_argument("port", type=int)
    command.set_defaults(work=scan)
    command = commands.add_parser("probe")
    command.add_argument("address")
    command.add_argument("port", type=int)
    command.add_argument("--rate", type=float, required=True)
    command.add_argument("--payload", type=int, default=200)
    command.add_argument("--for", type=float, required=True, dest="seconds")
    command.set_defaults(work=probe)
    command = commands.add_parser("times")
    command.add_argument("ports", type=int, nargs="+")
    command.set_defaults(work=times)
    command = commands.add_parser("spread")
    command.add_argument("--classes", type=int, required=True)
    command.add_argument("--rate", type=float, required=True)
    command.add_argument("--for", type=float, required=True, dest="seconds")
    command.set_defaults(work=spread)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
