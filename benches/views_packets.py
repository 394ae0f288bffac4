#!/usr/bin/env python3
"""Packets of benches/views: captures in files, flows that are mixed, and a full count of them.

  views_packets.py mix ADDRESS4 ADDRESS6 --ports PORT,… --rates N,… --flows N --seed N --for SECONDS
  views_packets.py capture INTERFACE FILE [--bind PORT,…]
  views_packets.py replay INTERFACE FILE --rate N

`mix` sends numbered datagrams of 100 to 1372 bytes to some ports, each port with its own rate in
packets a second, in flows of which few are large (Zipf), over IPv4 and IPv6.

`capture` writes the heads of all frames that an interface takes in or sends into a file (pcap, with
nanoseconds), each with the kernel's time (SO_TIMESTAMPNS), until its standard input ends. Then it
prints a line of JSON: how many, and how many the kernel could not keep. `--bind` opens sockets that
nobody reads, so that the host does not answer that nobody is there.

`replay` sends the frames of a file, filled up with zeros to their length, so many a second.
"""
import argparse
import bisect
import collections
import ctypes
import ipaddress
import itertools
import json
import random
import select
import socket
import struct
import sys
import time

# From asm-generic/socket.h, linux/if_packet.h and linux/prctl.h, which Python's modules do not have.
SO_TIMESTAMPNS, SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 35, 33, 263, 6
PR_SET_TIMERSLACK, ETH_P_ALL, ENOBUFS = 29, 3, 105
# draft-ietf-opsawg-pcap: microseconds, nanoseconds; Ethernet.
MICROS, NANOS, ETHERNET = 0xA1B2C3D4, 0xA1B23C4D, 1
# Bytes of a frame that are kept: all headers here, and 16 bytes of payload.
HEAD = 14 + 40 + 20 + 16
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
NAMES = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMP6: "ipv6-icmp"}


# Captures.

def begin(file, magic=MICROS):
    file.write(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 65535, ETHERNET))


def read(path):
    """Time in ns, head and whole length of each frame of a capture that was written here."""
    data = memoryview(open(path, "rb").read())
    unit = 1 if struct.unpack_from("<I", data)[0] == NANOS else 1000
    at = 24
    while at < len(data):
        seconds, part, held, whole = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + part * unit, data[at + 16:at + 16 + held], whole
        at += 16 + held


Packet = collections.namedtuple("Packet", "src sport dst dport proto bytes payload")


def packet(head):
    """The packet in a frame, with its length at layer 3, from the IP header on; None if it is not IP."""
    kind = struct.unpack_from("!H", head, 12)[0]
    if kind == 0x0800:
        size, proto = (head[14] & 15) * 4, head[23]
        length = struct.unpack_from("!H", head, 16)[0]
        src, dst = bytes(head[26:30]), bytes(head[30:34])
    elif kind == 0x86DD:
        size, proto = 40, head[20]
        length = 40 + struct.unpack_from("!H", head, 18)[0]
        src, dst = bytes(head[22:38]), bytes(head[38:54])
    else:
        return None
    at = 14 + size
    sport, dport = struct.unpack_from("!HH", head, at) if proto in (TCP, UDP) else (0, 0)
    return Packet(src, sport, dst, dport, proto, length, head[at + (8 if proto == UDP else 20):])


def name(address):
    return str(ipaddress.ip_address(address))


# A million packets.

def zipf(count):
    """Weights, added up, of things of which the n-th has 1/n of what the first has."""
    return list(itertools.accumulate(1 / n for n in range(1, count + 1)))


def host(rank, v6):
    """The address of a host, in bytes."""
    return struct.pack("!IIII", 0x20010DB8, 0, 0, rank) if v6 else struct.pack("!I", 0x0A000000 + rank)


def generated(count, seed):
    """So many packets between few large and many small hosts, of few large and many small services:
    source, destination, protocol, ports, length. Every fourth server speaks IPv6; the seventh
    service is ICMP."""
    numbers = random.Random(seed)
    servers = numbers.choices(range(1, 5001), cum_weights=zipf(5000), k=count)
    services = numbers.choices(range(1, 201), cum_weights=zipf(200), k=count)
    for server, service in zip(servers, services):
        bits = numbers.getrandbits(48)
        v6 = server % 4 == 0
        own, other = host(server, v6), host(10_000 + bits % 50_000, v6)
        length, port = 100 + (bits >> 16) % 1400, 40_000 + (bits >> 32) % 20_000
        proto = UDP if service % 2 else TCP
        if service == 7:
            proto, service, port = ICMP6 if v6 else ICMP, 0, 0
        # Servers send two packets of three.
        if bits % 3:
            yield own, other, proto, service, port, length
        else:
            yield other, own, proto, port, service, length


def frame(src, dst, proto, sport, dport, length):
    """The head of a frame (IEEE 802.3; RFC 791 3.1, RFC 8200 3; RFC 9293 3.1, RFC 768, RFC 792)."""
    if len(src) == 4:
        network = struct.pack("!12sHBBHHHBBH4s4s", bytes([2] * 12), 0x0800, 0x45, 0, length, 0, 0, 64, proto, 0, src,
                              dst)
    else:
        network = struct.pack("!12sHIHBB16s16s", bytes([2] * 12), 0x86DD, 6 << 28, length - 40, proto, 64, src, dst)
    if proto == TCP:
        return network + struct.pack("!HHIIBBHHH", sport, dport, 0, 0, 0x50, 0x10, 0, 0, 0)
    if proto == UDP:
        return network + struct.pack("!HHHH", sport, dport, length - (20 if len(src) == 4 else 40), 0)
    return network + struct.pack("!BBHI", 8 if proto == ICMP else 128, 0, 0, 0)


def write(path, count, seed, seconds=20):
    """Writes a capture of so many packets in so many seconds, and returns a full count of it: bytes
    by host and by protocol, all bytes."""
    hosts, protocols, total = collections.Counter(), collections.Counter(), 0
    with open(path, "wb", buffering=1 << 20) as file:
        begin(file)
        for number, (src, dst, proto, sport, dport, length) in enumerate(generated(count, seed)):
            micros = number * seconds * 1_000_000 // count
            head = frame(src, dst, proto, sport, dport, length)
            file.write(struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(head), 14 + length))
            file.write(head)
            hosts[src] += length
            hosts[dst] += length
            protocols[proto, min(sport, dport)] += length
            total += length
    named = {name(address): size for address, size in hosts.items()}
    labels = {f"{NAMES[proto]} {port}" if port else NAMES[proto]: size for (proto, port), size in protocols.items()}
    return named, labels, total


# Programs.

def mix(arguments):
    numbers = random.Random(arguments.seed)
    sockets = []
    for flow in range(arguments.flows):
        family, address = ((socket.AF_INET, arguments.four), (socket.AF_INET6, arguments.six))[flow % 2]
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.bind(("", 20_000 + flow))
        sockets.append((made, address))
    flows, ports = zipf(arguments.flows), list(itertools.accumulate(arguments.rates))
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    rest, sent = bytes(1372), 0
    print("ready", flush=True)
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + arguments.seconds:
        due = begun + sent / ports[-1]
        if due > now:
            time.sleep(due - now)
        made, address = sockets[bisect.bisect(flows, numbers.random() * flows[-1])]
        port = arguments.ports[bisect.bisect(ports, numbers.random() * ports[-1])]
        size = numbers.randrange(100, 1373)
        made.sendto(struct.pack("!Q", sent) + rest[:size - 8], (address, port))
        sent += 1
    print(json.dumps({"sent": sent, "late_s": time.monotonic() - begun - sent / ports[-1]}))


def capture(arguments):
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    listener.bind((arguments.interface, ETH_P_ALL))
    listener.setblocking(False)
    held = []
    for port in arguments.bind:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(("::", port))
        held.append(made)
    poll, count = select.poll(), 0
    poll.register(listener, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN)
    room = socket.CMSG_SPACE(16)
    with open(arguments.file, "wb", buffering=1 << 20) as file:
        begin(file, NANOS)
        print("ready", flush=True)
        over = False
        while not over:
            over = any(number == sys.stdin.fileno() for number, _ in poll.poll())
            while True:
                try:
                    data, control, _, _ = listener.recvmsg(65_535, room)
                except BlockingIOError:
                    break
                seconds, nanos = struct.unpack("qq", control[0][2])
                file.write(struct.pack("<IIII", seconds, nanos, min(len(data), HEAD), len(data)) + data[:HEAD])
                count += 1
    # Packets, and those that found no room (packet(7)).
    _, lost = struct.unpack("II", listener.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    print(json.dumps({"packets": count, "lost": lost}))


def replay(arguments):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    out.bind((arguments.interface, 0))
    zeros, sent, due_next = memoryview(bytes(65_536)), 0, 0
    print("ready", flush=True)
    begun = time.monotonic()
    for _, head, whole in read(arguments.file):
        if sent >= due_next:
            # A millisecond's frames at a time.
            time.sleep(max(0.0, begun + sent / arguments.rate - time.monotonic()))
            due_next = sent + max(1, int(arguments.rate / 1000))
        while True:
            try:
                out.sendmsg([head, zeros[:whole - len(head)]])
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError) and error.errno != ENOBUFS:
                    raise
                time.sleep(0.0001)
        sent += 1
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - begun}))


def numbers_of(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("mix")
    command.add_argument("four")
    command.add_argument("six")
    command.add_argument("--ports", type=numbers_of, required=True)
    command.add_argument("--rates", type=numbers_of, required=True)
    command.add_argument("--flows", type=int, default=200)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--for", type=float, required=True, dest="seconds")
    command.set_defaults(work=mix)
    command = commands.add_parser("capture")
    command.add_argument("interface")
    command.add_argument("file")
    command.add_argument("--bind", type=numbers_of, default=[])
    command.set_defaults(work=capture)
    command = commands.add_parser("replay")
    command.add_argument("interface")
    command.add_argument("file")
    command.add_argument("--rate", type=float, required=True)
    command.set_defaults(work=replay)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
