"""Measure how much traffic this machine's substrate carries, at the load that an experiment may put on it."""

import math

from ground.units import format_rate
from testbed.measurement.measurement import Flow, measure_goodput
from testbed.network.goodput import tcp_goodput_bps
from testbed.network.tcp_settings import TcpSettings
from testbed.network.topology import TopologySpec, resolve_topology
from testbed.testbed import bring_up

HEADROOM = 1.6
"""How much more than the demand is offered, so that a machine which carries it with some reserve shows that."""

_LATENCY_S = 0.005
_CONNECTIONS = 8
_LEAST_RATE_BPS = 10_000_000
_WINDOW_MIN_BYTES = 512 * 1024
_WINDOW_OVER_DELAY_PRODUCT = 3
_ACKNOWLEDGED_SHARE = 0.97
"""With traffic both ways, a few percent of each direction are the other's acknowledgements."""
_SECONDS = 3
_SETTLING_ROUND_S = 0.2
"""Two directions that share a path with their acknowledgements leave slow start early and take seconds to fill it."""


def measure_capacity_bps(substrate: str, demand_bps: int) -> int:
    """Return the wire rate in bit/s that two hosts in two datacenters reach together, both directions at once.

    They are offered ``HEADROOM`` times ``demand_bps``, through the very qdiscs that an experiment has: what a substrate
    carries depends on how its traffic is paced, so that a rate measured without caps would promise far too much. The
    experiment's own programs load the machine on top of that; callers leave a margin. Raises what ``bring_up`` and
    ``measure_goodput`` raise.
    """
    rate_bps = max(_LEAST_RATE_BPS, math.ceil(HEADROOM * demand_bps / 2))
    spec = TopologySpec.model_validate(
        {
            "datacenters": [{"name": "one", "hosts": 1}, {"name": "other", "hosts": 1}],
            "wan": {"latency": f"{_LATENCY_S}s", "rate": format_rate(rate_bps)},
        }
    )
    rtt_s = 2 * _LATENCY_S
    window_bytes = math.ceil(_WINDOW_OVER_DELAY_PRODUCT * rate_bps * rtt_s / 8 / _CONNECTIONS)
    with bring_up(resolve_topology(spec), substrate=substrate, source="capacity measurement") as testbed:
        testbed.use_tcp(TcpSettings(window_bytes=max(_WINDOW_MIN_BYTES, window_bytes), slow_start_after_idle=False))
        flows = [Flow("one-0", "other-0", _CONNECTIONS), Flow("other-0", "one-0", _CONNECTIONS)]
        goodputs = measure_goodput(testbed, flows, rtt_s=_SETTLING_ROUND_S, seconds=_SECONDS)
    return round(sum(goodputs) / tcp_goodput_bps(_ACKNOWLEDGED_SHARE))
