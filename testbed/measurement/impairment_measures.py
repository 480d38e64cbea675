"""Measure a link's impairments by echoes, and compute the share of a datagram stream that they let through."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from wanbed.ground.impairments import Impairments
from wanbed.testbed.hosts.ping import PingResult
from wanbed.testbed.measurement.iperf3 import UDP_PAYLOAD_BYTES
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES

UDP_OVERHEAD_BYTES = ETHERNET_HEADER_BYTES + 20 + 8
UDP_OFFERED = 1.05
"""Rate at which datagrams are offered, over the rate of the link."""

_SAMPLING_DEVIATIONS = 4
"""Tolerance of a measured fraction around the configured one, in standard deviations of sampling."""


def one_way_jitter_ms(rtt_deviation_ms: float) -> float:
    """Return the half-width w of a uniform one-way delay, from the standard deviation of RTTs, w sqrt(2/3)."""
    return rtt_deviation_ms * math.sqrt(3 / 2)


def one_way(both_ways: float) -> float:
    """Return the fraction p of packets affected in each direction, from that of echoes, 1 - (1 - p)^2."""
    return 1 - math.sqrt(1 - both_ways)


def jitter_beside_ms(echoes: PingResult, other_ms: float) -> float:
    """Return the half-width of one direction's delay, where the other one has the half-width ``other_ms``."""
    return math.sqrt(max(0.0, 3 * echoes.deviation_ms**2 - other_ms**2))


def loss_beside(echoes: PingResult, other: float) -> float:
    """Return the fraction of packets that one direction loses, where the other one loses the fraction ``other``."""
    return max(0.0, 1 - (1 - echoes.lost) / (1 - other)) if other < 1 else math.nan


def as_sampled(compared: ComparedFigure, echo_requests: int) -> bool:
    """Return whether sampling explains the difference between a measured and a configured fraction."""
    sampling = math.sqrt(max(compared.configured, 1 / echo_requests) / echo_requests)
    return abs(compared.measured - compared.configured) <= _SAMPLING_DEVIATIONS * sampling


def _not_judged(_: ComparedFigure, __: int) -> bool:
    return True


@dataclass(frozen=True)
class Measure:
    """The measure of one impairment per direction by echoes, in the unit of its column.

    ``measured`` takes both directions to be alike. Where they are not, ``beside`` is told what the other direction is
    configured to do; an impairment without it is then judged as if they were. ``within`` judges configured against
    measured, given the number of echo requests. ``delivered`` returns the fraction of the link's rate at which offered
    datagrams arrive, given the value of the impairment.
    """

    measured: Callable[[PingResult], float]
    within: Callable[[ComparedFigure, int], bool] = _not_judged
    delivered: Callable[[float], float] = lambda _: 1.0
    beside: Callable[[PingResult, float], float] | None = None

    def of(self, echoes: PingResult, own: float, other: float) -> float:
        """Return what echoes measure of a direction configured as ``own``, where the other one is as ``other``."""
        return self.measured(echoes) if self.beside is None or own == other else self.beside(echoes, other)


MEASURES = {
    "jitter_ns": Measure(lambda echoes: one_way_jitter_ms(echoes.deviation_ms), beside=jitter_beside_ms),
    "loss": Measure(lambda echoes: one_way(echoes.lost), as_sampled, lambda loss: 1 - loss, loss_beside),
}
"""The measure of every field of ``Impairments``."""


def compare(impairments: Impairments, back: Impairments, echoes: PingResult) -> dict[str, ComparedFigure]:
    """Return each impairment of a direction, configured and as measured by echoes, by its column.

    Echoes cross both directions: ``back`` has the configured impairments of the other one.
    """
    found = {}
    for each, value in impairments.items():
        own, other = each.in_column(value), each.in_column(getattr(back, each.field))
        found[each.column] = ComparedFigure(own, MEASURES[each.field].of(echoes, own, other))
    return found


def udp_goodput_bps(rate_bps: float, impairments: Impairments, payload_bytes: int = UDP_PAYLOAD_BYTES) -> float:
    """Return the goodput in bit/s of UDP datagrams at a rate, with impairments."""
    delivered = math.prod(MEASURES[each.field].delivered(value) for each, value in impairments.items())
    return rate_bps * payload_bytes / (payload_bytes + UDP_OVERHEAD_BYTES) * delivered
