"""Check hierarchical all-reduces in a small case with a closed form."""

from typing import Any

from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.runner.validation.case import LawCheck, all_reduce_ns, iteration_ns, simulated

_MS = 1_000_000
_DATACENTERS = ("north", "east", "south")
_HOSTS = 4
_INSIDE_MS, _ACROSS_MS, _LATENCY_MS = 900, 2000, 50
"""The time of a pass inside at 800 Mbit/s, 3/4 of 120 MB; and of 4/3 of 30 MB at 160 Mbit/s."""


def _simulated(simulate: Simulate, gradient: str, backward_ms: int, **transport: Any) -> Simulation:
    return simulated(
        simulate,
        {
            "datacenters": [{"name": name, "hosts": _HOSTS} for name in _DATACENTERS],
            "intra": {"latency": "0ns", "rate": "800Mbit"},
            "wan": {"node_pair_rate": "160Mbit", "latency": f"{_LATENCY_MS}ms"},
        },
        compute={"forward": "10ms", "backward": f"{backward_ms}ms", "gradient": gradient},
        training={"stages": 1, "pipelines": _HOSTS * len(_DATACENTERS), "microbatches": 1},
        variant={"schedule": "dp", "transport": {"all_reduce": "hierarchical", **transport}},
    )


def hierarchical_all_reduce(simulate: Simulate) -> LawCheck:
    """Check that of A bytes each of R replicas in a datacenter sums A / R with its counterparts in D datacenters.

    Before and after that, each sends (R - 1) / R x A inside, at P. A ring of all replicas would send
    2 (D R - 1) / (D R) x A over every hop, here for 11 s.
    """
    return LawCheck(
        "hierarchical all-reduce of 120 MB, 3 datacenters of 4, 800 Mbit/s inside, 160 across, 50 ms",
        "2 (R - 1) / R x A / P + 2 (D - 1) / D x A / (R W) + c",
        ((2 * _INSIDE_MS + _ACROSS_MS + _LATENCY_MS) * _MS,),
        (all_reduce_ns(_simulated(simulate, "120MB", 10)),),
    )


def hierarchical_buckets(simulate: Simulate) -> LawCheck:
    """Check that buckets follow each other, each with all passes. The first of 2 is complete after half a backward."""
    backward_ms, bucket_ms = 1000, 2 * _INSIDE_MS + _ACROSS_MS + _LATENCY_MS
    return LawCheck(
        "two buckets of that size, beside a backward of 1 s",
        "f + b / 2 + 2 t",
        ((10 + backward_ms // 2 + 2 * bucket_ms) * _MS,),
        (iteration_ns(_simulated(simulate, "240MB", backward_ms, all_reduce_overlap=True, bucket="120MB")),),
    )
