#!/usr/bin/env python3
"""The datagrams of benches/paths: a sender, and sockets that only count.

  paths_load.py flood ADDRESS PORT --payload N [--rate N] [--segments N] --for SECONDS
  paths_load.py sink PORT…

`flood` sends datagrams of `--payload` bytes, `--rate` of them a second; without a rate as many as it
can. A call hands `--segments` of them to the kernel, which cuts them apart (UDP_SEGMENT, udp(7)):
on an interface with `gso_max_segs 1` before they leave the host, so every packet is one of its own
for all that follow. It never catches up more than 10 ms. It prints a line when it begins, and at the
end, or at SIGTERM, a line of JSON: how many it sent, in how many seconds.

`sink` counts the datagrams that arrive at its ports, IPv4 and IPv6. A filter drops them at the
socket (socket(7), SO_ATTACH_FILTER), so that no time goes into copying them, and the kernel counts
what it drops there (SO_MEMINFO). For each line on its standard input it prints a line of JSON: the
time (CLOCK_MONOTONIC, in ns) and the number for each port.
"""
import argparse
import ctypes
import errno
import json
import signal
import socket
import struct
import sys
import time

# From linux/udp.h, asm-generic/socket.h, linux/sock_diag.h and linux/prctl.h, which Python's
# modules do not have.
SOL_UDP, UDP_SEGMENT = 17, 103
SO_SNDBUFFORCE, SO_ATTACH_FILTER, SO_MEMINFO, SK_MEMINFO_DROPS = 32, 26, 55, 8
PR_SET_TIMERSLACK = 29

# Bytes that may wait in queues of the sender's own host before a call waits for room.
SEND_BUFFER = 64 << 20
# A sender that is later than this, in seconds, leaves out what is overdue.
BEHIND = 0.010
# What a call may answer under load; the datagrams are lost then.
LOST = {errno.ENOBUFS, errno.EAGAIN, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM}


def flood(arguments):
    family = socket.AF_INET6 if ":" in arguments.address else socket.AF_INET
    out = socket.socket(family, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER)
    out.connect((arguments.address, arguments.port))
    if arguments.segments > 1:
        out.setsockopt(SOL_UDP, UDP_SEGMENT, arguments.payload)
    # Timers fire when they are due, instead of up to 50 us later.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    data = bytes(arguments.payload * arguments.segments)
    gap = arguments.segments / arguments.rate if arguments.rate else 0
    send, clock, sent = out.send, time.monotonic, 0
    print("ready", flush=True)
    begin = due = clock()
    end, stop = begin + arguments.seconds, []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while (now := clock()) < end and not stop:
        if due > now:
            time.sleep(min(due, end) - now)
            continue
        try:
            send(data)
            sent += arguments.segments
        except OSError as error:
            if error.errno not in LOST:
                raise
        due = max(due, now - BEHIND) + gap
    print(json.dumps({"sent": sent, "seconds": clock() - begin}))


def counting(family, port):
    """A socket at which the kernel drops everything."""
    made = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # BPF_RET | BPF_K with 0: nothing is kept of any packet.
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    made.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))
    made.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
    return made


def dropped(sock):
    size = struct.calcsize("I") * (SK_MEMINFO_DROPS + 1)
    return struct.unpack(f"{SK_MEMINFO_DROPS + 1}I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, size))[-1]


def sink(arguments):
    sockets = {port: [] for port in arguments.ports}
    for port, found in sockets.items():
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                found.append(counting(family, port))
            except OSError as error:
                # A host may have no IPv6.
                if family == socket.AF_INET or error.errno != errno.EAFNOSUPPORT:
                    raise
    print("ready", flush=True)
    for _ in sys.stdin:
        count = {port: sum(map(dropped, found)) for port, found in sockets.items()}
        print(json.dumps({"at": time.monotonic_ns(), "count": count}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("flood")
    command.add_argument("address")
    command.add_argument("port", type=int)
    command.add_argument("--payload", type=int, required=True)
    command.add_argument("--rate", type=float, default=0)
    command.add_argument("--segments", type=int, default=1)
    command.add_argument("--for", type=float, required=True, dest="seconds")
    command.set_defaults(work=flood)
    command = commands.add_parser("sink")
    command.add_argument("ports", type=int, nargs="+")
    command.set_defaults(work=sink)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
