"""Measure how much traffic this machine's substrate can carry, at the load of an experiment."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from wanbed.ground.units import format_rate
from wanbed.testbed.hosts.ping import MeasurementError
from wanbed.testbed.measurement.bounded_transfer import Ends, StalledError
from wanbed.testbed.measurement.bounded_transfer import tcp_goodput_bps as bounded_goodput_bps
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.testbed import bring_up

HEADROOM = 1.6
"""Offered load over demand, so that a machine with reserve shows it."""

LATENCY_NS = 5_000_000
CONNECTIONS = 8
ACKNOWLEDGED_SHARE = 0.97
"""Share of the rate for data: with traffic in both directions, acknowledgements take a few percent of each."""
SETTLING_ROUND_S = 0.2
"""RTT assumed for settling: two directions that carry each other's acknowledgements leave slow start early and take
seconds to fill the path."""

_RTT_S = 2 * LATENCY_NS / 1e9
_LEAST_RATE_BPS = 10_000_000
_WINDOW_MIN_BYTES = 360 * 1024
_WINDOW_OVER_DELAY_PRODUCT = 2.1
_SECONDS = 3


def measure_capacity_bps(substrate: str, demand_bps: int) -> int:
    """Return the total wire rate in bit/s that two hosts in two datacenters reach with both directions at once.

    The offered load is ``HEADROOM`` times ``demand_bps``, through the same kind of qdiscs as in an experiment: the
    capacity of a substrate depends on pacing, so that a rate measured without limits would be far too high. The
    experiment's own programs load the machine in addition; callers leave a margin for them. Raise what ``bring_up`` and
    ``measure_goodput`` raise.
    """
    rate_bps = max(_LEAST_RATE_BPS, math.ceil(HEADROOM * demand_bps / 2))
    spec = TopologySpec.model_validate(
        {
            "datacenters": [{"name": "one", "hosts": 1}, {"name": "other", "hosts": 1}],
            "wan": {"latency": f"{LATENCY_NS}ns", "rate": format_rate(rate_bps)},
        }
    )
    with bring_up(resolve_topology(spec), substrate=substrate, source="capacity measurement") as testbed:
        testbed.use_tcp(capacity_settings(rate_bps, CONNECTIONS))
        directions = [("one-0", "other-0"), ("other-0", "one-0")]
        if testbed.stacks.modelled:
            goodputs = _modelled_goodputs_bps([Ends(testbed, *each) for each in directions], rate_bps)
        else:
            flows = [Flow(*each, CONNECTIONS) for each in directions]
            goodputs = measure_goodput(testbed, flows, rtt_s=SETTLING_ROUND_S, seconds=_SECONDS)
    return round(sum(goodputs) / tcp_goodput_bps(ACKNOWLEDGED_SHARE))


def capacity_settings(rate_bps: int, connections: int) -> TcpSettings:
    """Return TCP settings with which so many connections fill a node pair of a rate, at ``LATENCY_NS`` each way."""
    window_bytes = math.ceil(_WINDOW_OVER_DELAY_PRODUCT * rate_bps * _RTT_S / 8 / connections)
    return TcpSettings(window_bytes=max(_WINDOW_MIN_BYTES, window_bytes), slow_start_after_idle=False)


def _modelled_goodputs_bps(directions: Sequence[Ends], rate_bps: int) -> list[float]:
    """Return the goodput in each direction, measured at once. iperf3 does not bind hosts' addresses by itself."""
    try:
        with ThreadPoolExecutor(len(directions)) as threads:
            measured = [
                threads.submit(bounded_goodput_bps, ends, CONNECTIONS, rate_bps=rate_bps, rtt_s=_RTT_S, longer=True)
                for ends in directions
            ]
            return [each.result() for each in measured]
    except StalledError as stalled:
        raise MeasurementError(str(stalled)) from None
