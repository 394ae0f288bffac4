#!/usr/bin/env python3
"""The numbered datagrams of benches/service: a sender, and a receiver that notes what comes when.

  service_load.py stream ADDRESS PORT --rate N --payload N --for SECONDS
  service_load.py listen PORT

`stream` sends `--rate` datagrams a second with a number in each. It sends what is overdue at once,
so every number is sent. It prints a line when it begins and, at the end or at SIGTERM, a line of
JSON: how many it sent.

`listen` notes when the kernel received each datagram (SO_TIMESTAMPNS). For a line on its standard
input it prints a line of JSON with all that came since the last one: numbers, and times in seconds
of CLOCK_MONOTONIC.
"""
import argparse
import ctypes
import json
import signal
import socket
import struct
import sys
import threading
import time

# From asm-generic/socket.h and linux/prctl.h, which Python's modules do not have.
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
PR_SET_TIMERSLACK = 29


def stream(arguments):
    family = socket.AF_INET6 if ":" in arguments.address else socket.AF_INET
    out = socket.socket(family, socket.SOCK_DGRAM)
    out.connect((arguments.address, arguments.port))
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    rest = bytes(arguments.payload - 8)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    print("ready", flush=True)
    begin, sent = time.monotonic(), 0
    while not stop and (now := time.monotonic()) < begin + arguments.seconds:
        due = begin + sent / arguments.rate
        if due > now:
            time.sleep(due - now)
            continue
        try:
            out.send(struct.pack("!Q", sent) + rest)
        except OSError:
            # The interface is down, or there is no room: the number is missing at the receiver.
            pass
        sent += 1
    print(json.dumps({"sent": sent, "began": begin}))


def listen(arguments):
    got, lock = [], threading.Lock()
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind(("::", arguments.port))
    offset = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()

    def receive():
        while True:
            data, control, _, _ = sock.recvmsg(64, socket.CMSG_SPACE(16))
            for level, kind, value in control:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, nanos = struct.unpack("qq", value)
                    with lock:
                        got.append((struct.unpack("!Q", data[:8])[0], seconds - offset + nanos / 1e9))

    threading.Thread(target=receive, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        with lock:
            found, got[:] = list(got), []
        print(json.dumps(found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("stream")
    command.add_argument("address")
    command.add_argument("port", type=int)
    command.add_argument("--rate", type=float, required=True)
    command.add_argument("--payload", type=int, default=200)
    command.add_argument("--for", type=float, required=True, dest="seconds")
    command.set_defaults(work=stream)
    command = commands.add_parser("listen")
    command.add_argument("port", type=int)
    command.set_defaults(work=listen)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
