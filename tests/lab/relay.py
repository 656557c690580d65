"""Carries Ethernet frames between two interfaces, late and not all of them.

    relay.py ONE OTHER DELAY_MS LOSS

For kernels without netem. Runs in a network namespace that holds nothing but the two, prints a line
once it carries, and ends when it is killed. LOSS is a share, 0 to 1; a frame is what the kernel
hands over at once, up to 64 KiB where it leaves cutting to the card.
"""

from __future__ import annotations

import random
import select
import socket
import sys
import time
from collections import deque

SOL_PACKET = 263
PACKET_VNET_HDR = 15
"""Frames come and go with what is left to do on them: checksums, cutting."""
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
MOST = 70000


def tap(name: str) -> socket.socket:
    """Every frame that arrives at an interface."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.bind((name, 0))
    sock.setblocking(False)
    return sock


def carry(one: socket.socket, other: socket.socket, delay_s: float, loss: float) -> None:
    """Both ways, for ever."""
    ways = {one: other, other: one}
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()  # all wait equally long: in order
    while True:
        rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select(list(ways), [], [], rest)
        for source in readable:
            try:
                frame = source.recv(MOST)
            except OSError:  # told once, when its link goes down
                continue
            if random.random() >= loss:
                waiting.append((time.monotonic() + delay_s, ways[source], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, frame = waiting.popleft()
            try:
                target.send(frame)
            except OSError:  # the link is down or full: lost, as on a wire
                continue


if __name__ == "__main__":
    first, second = tap(sys.argv[1]), tap(sys.argv[2])
    print("carries", flush=True)
    carry(first, second, float(sys.argv[3]) / 1000, float(sys.argv[4]))
