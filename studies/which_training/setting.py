"""State what all methods share: datacenters, model, the WANs of the map, and the methods' names."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DATACENTERS = ("east", "central", "west")
GPUS_EACH = 4
"""GPUs of a datacenter, one a host."""
CONTEXT = 4096
SEQUENCES = 240
TOKENS = CONTEXT * SEQUENCES
"""Tokens of an iteration, with every method."""
MODEL: dict[str, Any] = {"layers": 31, "hidden": 2560, "context": CONTEXT, "heads": 32, "vocabulary": 32000}
"""2.6 billion weights. The head takes about as long as a layer: 31 layers and a head are shared out evenly."""
LATENCIES_MS = (10, 25, 50, 100)
RATES_BPS = (100_000_000, 300_000_000, 1_000_000_000, 3_000_000_000, 10_000_000_000)
NODE_PAIR_BPS = 5_000_000_000
"""The most that a pair of hosts sends over the WAN, as clouds limit it (the cap of Atlas's paper)."""
SYNC_EVERY = 30
"""Iterations from one synchronisation of replicas that train alone to the next, here and where losses are measured."""


class Method(StrEnum):
    """A way to train across datacenters, and, to compare, one datacenter alone."""

    ONE = "one datacenter"
    ATLAS = "Atlas"
    VARUNA = "Varuna"
    HIERARCHICAL = "hierarchical DP"
    DILOCO = "DiLoCo"
    STREAMING = "Streaming DiLoCo"
    ATOM = "ATOM"

    @property
    def synchronous(self) -> bool:
        """Whether every iteration sums the gradients of all sequences, as data parallelism does."""
        return self not in {Method.DILOCO, Method.STREAMING, Method.ATOM}


@dataclass(frozen=True, order=True)
class Wan:
    """A WAN of the map: the one-way latency and the trunk's rate between every two datacenters."""

    latency_ms: int
    rate_bps: int

    def __post_init__(self) -> None:
        if min(self.latency_ms, self.rate_bps) < 1:
            raise ValueError(f"{self}: latency and rate are to be above 0")

    @property
    def node_pair_bps(self) -> int:
        """The rate between two hosts."""
        return min(self.rate_bps, NODE_PAIR_BPS)

    @property
    def in_flight_bytes(self) -> int:
        """The bytes that a node pair holds: rate x round trip."""
        return self.node_pair_bps * 2 * self.latency_ms // 8000

    @property
    def rate_gbps_text(self) -> str:
        """The trunk's rate in Gbit/s, as tables have it."""
        return f"{self.rate_bps / 1e9:g}"


WANS = tuple(Wan(latency_ms, rate_bps) for latency_ms in LATENCIES_MS for rate_bps in RATES_BPS)


def topology(wan: Wan) -> dict[str, Any]:
    """Return the experiment's section ``topology`` for a WAN."""
    return {
        "datacenters": [{"name": name, "hosts": GPUS_EACH} for name in DATACENTERS],
        "intra": {"rate": "100Gbit"},
        "wan": {
            "latency": f"{wan.latency_ms}ms",
            "rate": f"{wan.rate_bps}bit",
            "node_pair_rate": f"{wan.node_pair_bps}bit",
        },
    }
