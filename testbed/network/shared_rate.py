"""Decide whether a rate that several flows share (a trunk, a host's port) can bind, and how to shape it on each clock.

A line used by one flow needs only netem's rate, which serialises packets one after the other. A rate that several flows
share needs HTB, which passes a packet while the balance of its token bucket is not negative, and then charges it. The
size of the bucket trades two errors:

- A bucket larger than a packet: flows that start at once exceed the rate by the bucket, once after each pause.
- A bucket smaller than a packet: a lone flow at the full rate, whose packets netem has serialised already, waits for
  the charge of the last packet whenever a smaller packet follows.

So the best bucket is one packet, and the error is one packet, provided that the clock wakes HTB in time.

In virtual time the clock always does, and packets can be small: hosts send no packet that takes longer than
``SUPER_PACKET_NS``, or longer than two frames if that is more, on the slowest line of its path.

On the real clock packets are as large as hosts make them, 64 KiB: smaller ones would cost the gateway guest throughput.
If a timer fires late, the tokens that the bucket cannot hold are lost. So the bucket covers the largest observed
lateness of timers: with less, node pairs that fill a trunk stay 5 % and more below its rate. This was measured with
three pairs on trunks of 20 to 400 Mbit/s in the gateway guest, and of 100 and 1000 Mbit/s on a host's kernel, on two
cores with other load.
"""

import math
from collections.abc import Iterable
from enum import Enum

from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.gateway_plan import SharedRate

MIN_BYTES_PER_S = 8
"""At a lower rate a full frame takes longer than the kernel's rate tables can express: 32 bits of 64 ns."""

SUPER_PACKET_NS = 250_000
_RTT_PART = 80
FRAMES_MIN, FRAMES_MAX = 2, 45
"""Bounds of the frames in one of TCP's packets: at least two, at most 64 KiB. The latter is of the usual MTU."""

_BURST_MAX_US = 60 * 10**6
"""HTB's own horizon. The kernel stores a burst as a duration in 32 bits, which end at 275 s."""


class Timers(Enum):
    """The clock that wakes the qdiscs. The value is its largest lateness in nanoseconds."""

    VIRTUAL = 0
    KERNEL = 1_000_000
    GUEST = 8_000_000


def bytes_per_s(rate_bps: int) -> int:
    """Return a rate in the kernel's unit: whole bytes per second, at least ``MIN_BYTES_PER_S``."""
    return max(MIN_BYTES_PER_S, rate_bps // 8)


def can_bind(rate_bps: int | None, feeding_bps: Iterable[int | None]) -> bool:
    """Return whether flows of the rates ``feeding_bps`` can together exceed ``rate_bps``; None is unlimited.

    A single flow cannot exceed the shared rate, because its leaf limits it.
    """
    if rate_bps is None:
        return False
    return sum(rate_bps if each is None else min(rate_bps, each) for each in feeding_bps) > rate_bps


def most_frames(frame_bytes: int) -> int:
    """Return how many full frames of that size one of TCP's packets has at most."""
    return max(FRAMES_MIN, FRAMES_MAX * FRAME_BYTES // frame_bytes)


def super_packet_frames(rate_bps: int, rtt_ns: int | None = None, frame_bytes: int = FRAME_BYTES) -> int:
    """Return how many full frames a host may send as one packet in virtual time, on a line of that rate.

    A line passes a packet on only after its last byte, which delays the acknowledgement of its first bytes. With
    ``rtt_ns`` given, this delay is at most 1/80 of it.
    """
    lasts_ns = SUPER_PACKET_NS if rtt_ns is None else min(SUPER_PACKET_NS, rtt_ns // _RTT_PART)
    return min(most_frames(frame_bytes), max(FRAMES_MIN, rate_bps * lasts_ns // (8 * 10**9 * frame_bytes)))


def shared_rate(rate_bps: int, timers: Timers, super_packet_bytes: int, frame_bytes: int = FRAME_BYTES) -> SharedRate:
    """Return the shaping of a shared rate that can bind.

    ``super_packet_bytes`` is the largest packet in virtual time; it is ignored on the real clock.
    """
    rate = bytes_per_s(rate_bps)
    late_bytes = rate * timers.value // 10**9
    least_bytes = FRAMES_MIN * frame_bytes
    burst_bytes = super_packet_bytes if timers is Timers.VIRTUAL else max(least_bytes, late_bytes)
    return SharedRate(rate, min(_BURST_MAX_US, math.ceil(burst_bytes * 10**6 / rate)))
