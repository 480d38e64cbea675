"""Decide what limits a node pair's rate: its netem leaf, or, where the rate changes, HTB above the leaf.

netem fixes when a packet leaves as soon as it comes. So what queues in a leaf while it is slow leaves at that rate,
long after the leaf is fast again. HTB decides when a packet is to leave: what queues leaves at the rate of the moment,
as from any router.

The leaf below has the highest of the rates, and passes a packet on once its last byte has been sent at that rate. HTB
passes it on when its turn begins. So while a pair has a lower rate, each packet is early by the difference of its times
at both rates; at the highest rate none is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wanbed.testbed.network.gateway_plan import SharedRate
from wanbed.testbed.network.shared_rate import FRAMES_MIN, Timers, bytes_per_s
from wanbed.testbed.network.topology import highest

_LEAST_BURST_US = 1


@dataclass(frozen=True)
class PairRates:
    """The rate of the leaf, None if unlimited, and the rate above it at each time, None where nothing is above it."""

    leaf_bytes_per_s: int | None
    above: tuple[SharedRate | None, ...]


def pair_rates(rates_bps: Sequence[int | None], timers: Timers, shared: Callable[[int], SharedRate]) -> PairRates:
    """Return what limits a node pair that has each of these rates at some time; None is unlimited.

    ``shared`` plans the bucket of a rate that several share. In virtual time a lower rate needs none: its timers are
    exact, and no packet that comes at that rate already waits for a larger one before it.
    """
    leaves = [None if rate_bps is None else bytes_per_s(rate_bps) for rate_bps in rates_bps]
    fastest = highest(leaves)
    if len({*leaves}) == 1:
        return PairRates(fastest, (None,) * len(leaves))

    def above(rate_bps: int | None) -> SharedRate | None:
        if rate_bps is None:
            return None
        if timers is Timers.VIRTUAL and bytes_per_s(rate_bps) != fastest:
            return SharedRate(bytes_per_s(rate_bps), _LEAST_BURST_US)
        return shared(rate_bps)

    return PairRates(fastest, tuple(map(above, rates_bps)))


def early_s(above: SharedRate | None, super_packet_frames: int | None, frame_bytes: int) -> float:
    """Return by how many seconds a packet may be early where ``above`` limits a node pair: its time, and the bucket's.

    ``super_packet_frames`` are the frames in the hosts' largest packet, None if their kernels choose it: these send
    small packets over a line on which large ones would take long.
    """
    if above is None:
        return 0.0
    packet_bytes = (super_packet_frames or FRAMES_MIN) * frame_bytes
    return packet_bytes / above.rate_bytes_per_s + above.burst_us / 10**6
