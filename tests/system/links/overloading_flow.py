"""Send UDP packets to a host: on and off at random times, and twice so many small ones that the link's queue is full.

Run as a program: ``overloading_flow.py HOST SECONDS``.
"""

import random
import socket
import sys
import time

ON_BPS, ON_FRAME_BYTES, MEAN_STATE_S = 25e6, 1250, 0.4
OVERLOAD_BPS, OVERLOAD_FRAME_BYTES, OVERLOAD_PACKETS = 200e6, 80, 135_000
OVERLOADS = (0.2, 0.7)
"""When the overloads begin, as fractions of the whole time."""
HEADER_BYTES = 42


def main() -> None:
    host, seconds = sys.argv[1], float(sys.argv[2])
    draw = random.Random(7)
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address = (socket.gethostbyname(host), 9)
    start_s = time.monotonic()

    def send(at_s: float, frame_bytes: int) -> None:
        ahead_s = start_s + at_s - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        flow.sendto(bytes(frame_bytes - HEADER_BYTES), address)

    at_s, on, overloads = 0.0, True, [fraction * seconds for fraction in OVERLOADS]
    while at_s < seconds:
        until_s = at_s + draw.expovariate(1 / MEAN_STATE_S)
        while on and at_s < until_s:
            send(at_s, ON_FRAME_BYTES)
            at_s += draw.expovariate(ON_BPS / 8 / ON_FRAME_BYTES)
        at_s, on = max(at_s, until_s), not on
        if overloads and at_s >= overloads[0]:
            overloads.pop(0)
            for _ in range(OVERLOAD_PACKETS):
                send(at_s, OVERLOAD_FRAME_BYTES)
                at_s += OVERLOAD_FRAME_BYTES * 8 / OVERLOAD_BPS


if __name__ == "__main__":
    main()
