"""Decide whether a rate that several flows share (a trunk, a host's port) can bind, and how each clock shapes it.

A line that one flow has to itself needs no more than netem's rate, which serialises packets one after the other. What
several share takes HTB, which lets a packet go as long as the balance of its token bucket is not below zero, and then
charges it. Its bucket decides between two errors, each as large as the bucket or the packet is:

- it is larger than a packet: flows that start at once send as much more than the rate gives, once after each pause;
- it is smaller: a lone flow at the full rate, whose packets netem has serialised already, waits for the charge of the
  last packet whenever a smaller one follows it.

So the best bucket is one packet large, and the error then as large as a packet, on a clock that wakes HTB in time.

In virtual time it always does, and packets are free to be small: hosts there send no packet that takes longer than
``SUPER_PACKET_NS``, or than two frames, on the slowest line on its way.

On the real clock packets are as large as hosts make them, 64 KiB, since smaller ones would cost the guest kernel its
throughput; and a timer that fires late loses for good what the bucket cannot hold by then. So the bucket is as long as
timers were seen to be late: with less, pairs that fill a trunk stay 5 % and more below its rate. Measured with three
pairs on trunks of 20 to 400 Mbit/s through the guest, and of 100 and 1000 Mbit/s on a host's kernel, on two cores that
were busy with other things.
"""

import math
from collections.abc import Iterable
from enum import Enum

from testbed.network.gateway_plan import SharedRate

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES

MIN_BYTES_PER_S = 8
"""Below it a full frame lasts longer than the kernel's rate tables tell, which count 64 ns in 32 bits."""

SUPER_PACKET_NS = 250_000
_RTT_PART = 80
_FRAMES_MIN, _FRAMES_MAX = 2, 45
"""TCP sends two at least, and 64 KiB at most."""

_BURST_MIN_BYTES = _FRAMES_MIN * FRAME_BYTES
_BURST_MAX_US = 60 * 10**6
"""HTB's own horizon; the 32 bits that tell a burst, as the time it takes, end at 275 s."""


class Timers(Enum):
    """The clock that wakes the qdiscs; the value is how late it may do so, in nanoseconds."""

    VIRTUAL = 0
    KERNEL = 1_000_000
    GUEST = 8_000_000


def bytes_per_s(rate_bps: int) -> int:
    """Return a rate as the kernel keeps it: whole bytes per second, at least ``MIN_BYTES_PER_S``."""
    return max(MIN_BYTES_PER_S, rate_bps // 8)


def can_bind(rate_bps: int | None, feeding_bps: Iterable[int | None]) -> bool:
    """Return whether flows of these rates, None for an unlimited one, can together exceed the rate that they share.

    None of them exceeds it alone, because its leaf limits it.
    """
    if rate_bps is None:
        return False
    return sum(rate_bps if each is None else min(rate_bps, each) for each in feeding_bps) > rate_bps


def super_packet_frames(rate_bps: int, rtt_ns: int | None = None) -> int:
    """Return how many full frames a host may send as one packet in virtual time, over a line of that rate.

    A line passes a packet on when its last byte has gone, so that it is acknowledged by so much later than its first
    byte alone would be: by an eightieth of the line's ``rtt_ns`` at most.
    """
    lasts_ns = SUPER_PACKET_NS if rtt_ns is None else min(SUPER_PACKET_NS, rtt_ns // _RTT_PART)
    return min(_FRAMES_MAX, max(_FRAMES_MIN, rate_bps * lasts_ns // (8 * 10**9 * FRAME_BYTES)))


def shared_rate(rate_bps: int, timers: Timers, super_packet_bytes: int) -> SharedRate:
    """Shape a rate that is shared and can bind.

    ``super_packet_bytes`` bound packets in virtual time alone.
    """
    rate = bytes_per_s(rate_bps)
    late_bytes = rate * timers.value // 10**9
    burst_bytes = super_packet_bytes if timers is Timers.VIRTUAL else max(_BURST_MIN_BYTES, late_bytes)
    return SharedRate(rate, min(_BURST_MAX_US, math.ceil(burst_bytes * 10**6 / rate)))
