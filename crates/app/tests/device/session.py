"""One end of a PPPoE session at an interface: the kernel's own `ppp0`, without the negotiation of PPP.

session.py DEVICE PEER, where PEER is the other end's Ethernet address in hexadecimal digits. It prints
`up` when there is a ppp0, which lasts until standard input ends. Exit code 7: the kernel has no PPPoE.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

# From linux/if_pppox.h, linux/ppp-ioctl.h.
AF_PPPOX, PX_PROTO_OE = 24, 0
PPPIOCGCHAN, PPPIOCATTCHAN, PPPIOCCONNECT, PPPIOCNEWUNIT = 0x80047437, 0x40047438, 0x4004743A, 0xC004743E
SESSION = 1


def number(fd, request, value=0):
    """What a request about a number answers."""
    return struct.unpack("i", fcntl.ioctl(fd, request, struct.pack("i", value)))[0]


def main():
    device, peer = sys.argv[1], bytes.fromhex(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    session = libc.socket(AF_PPPOX, socket.SOCK_STREAM, PX_PROTO_OE)
    if session < 0:
        print(f"no sockets of PPPoE: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 7
    address = struct.pack("=HIH6s16s", AF_PPPOX, PX_PROTO_OE, socket.htons(SESSION), peer, device.encode())
    if libc.connect(session, address, len(address)) != 0:
        print(f"PPPoE at {device}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 7
    try:
        channel, unit = (os.open("/dev/ppp", os.O_RDWR) for _ in range(2))
    except OSError as error:
        print(f"/dev/ppp: {error.strerror}", file=sys.stderr)
        return 7
    number(channel, PPPIOCATTCHAN, number(session, PPPIOCGCHAN))
    number(channel, PPPIOCCONNECT, number(unit, PPPIOCNEWUNIT))
    print("up", flush=True)
    sys.stdin.read()
    return 0


sys.exit(main())
