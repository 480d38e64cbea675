"""Measure a link's impairments by its echoes, and tell what they leave of a stream of datagrams."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ground.impairments import Impairments
from testbed.hosts.ping import PingResult
from testbed.measurement.measurement import UDP_PAYLOAD_BYTES
from testbed.measurement.transfer_calibration import Compared
from testbed.network.shared_rate import ETHERNET_HEADER_BYTES

UDP_OVERHEAD_BYTES = ETHERNET_HEADER_BYTES + 20 + 8
UDP_OFFERED = 1.05
"""The pace at which datagrams are offered, over the rate of the link."""

_SAMPLING_DEVIATIONS = 4
"""A measured fraction may lie this many standard deviations of its own sampling from the fraction configured."""


def one_way_jitter_ms(rtt_deviation_ms: float) -> float:
    """Return the half-width w of a uniform one-way delay, from the deviation of round trips.

    That deviation is w sqrt(2/3) over both ways.
    """
    return rtt_deviation_ms * math.sqrt(3 / 2)


def one_way(both_ways: float) -> float:
    """Return the fraction p of packets that something befalls each way, from that of echoes: 1 - (1 - p)^2."""
    return 1 - math.sqrt(1 - both_ways)


def as_sampled(compared: Compared, echo_requests: int) -> bool:
    """Return whether sampling explains how far a measured fraction is from the one configured."""
    sampling = math.sqrt(max(compared.configured, 1 / echo_requests) / echo_requests)
    return abs(compared.measured - compared.configured) <= _SAMPLING_DEVIATIONS * sampling


def _not_judged(_: Compared, __: int) -> bool:
    return True


@dataclass(frozen=True)
class Measure:
    """How echoes measure one impairment each way, in the unit of its column.

    ``within`` compares configured with measured, of so many echo requests. ``delivered`` is the fraction of its rate
    that a link with so much of the impairment delivers of the datagrams offered.
    """

    measured: Callable[[PingResult], float]
    within: Callable[[Compared, int], bool] = _not_judged
    delivered: Callable[[float], float] = lambda _: 1.0


MEASURES = {
    "jitter_ns": Measure(lambda echoes: one_way_jitter_ms(echoes.deviation_ms)),
    "loss": Measure(lambda echoes: one_way(echoes.lost), as_sampled, lambda loss: 1 - loss),
}
"""The measure of every field of ``Impairments``."""


def compare(impairments: Impairments, echoes: PingResult) -> dict[str, Compared]:
    """Return each impairment by its column, as configured and as echoes show it."""
    return {
        each.column: Compared(each.in_column(value), MEASURES[each.field].measured(echoes))
        for each, value in impairments.items()
    }


def udp_goodput_bps(rate_bps: float, impairments: Impairments) -> float:
    """Return the goodput that a rate and impairments leave to the payload of full UDP datagrams."""
    delivered = math.prod(MEASURES[each.field].delivered(value) for each, value in impairments.items())
    return rate_bps * UDP_PAYLOAD_BYTES / (UDP_PAYLOAD_BYTES + UDP_OVERHEAD_BYTES) * delivered
