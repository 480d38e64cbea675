"""Compute what training costs from the prices of its datacenters, which are US dollars."""

from collections.abc import Mapping
from dataclasses import dataclass

Ends = tuple[str, str]
"""The sending and the receiving datacenter of a WAN link."""

_SECONDS_PER_HOUR = 3600
_BYTES_PER_GB = 10**9


@dataclass(frozen=True)
class TrialPrices:
    """The prices that a trial was recorded with.

    ``gpus_usd_per_h`` is paid for an hour of all GPUs that train, ``egress_usd_per_gb`` for 10^9 bytes over each
    direction of a WAN link. The trial had so many ``iterations``, warm-up included.
    """

    gpus_usd_per_h: float
    egress_usd_per_gb: Mapping[Ends, float]
    iterations: int

    def cost(self, sent_bytes: Mapping[Ends, int], iteration_time_s: float) -> "IterationCost":
        """Return what an iteration costs in a trial that sent so many bytes over each direction of a link."""
        egress_usd = sum(size * self.egress_usd_per_gb[ends] for ends, size in sent_bytes.items()) / _BYTES_PER_GB
        return IterationCost(
            iteration_time_s, self.gpus_usd_per_h * iteration_time_s / _SECONDS_PER_HOUR, egress_usd / self.iterations
        )


@dataclass(frozen=True)
class IterationCost:
    """Hold the cost of an iteration: of its time on the GPUs that train, and of its share of the bytes over the WAN."""

    iteration_time_s: float
    gpus_usd: float
    egress_usd: float

    @property
    def usd(self) -> float:
        """Both together."""
        return self.gpus_usd + self.egress_usd

    @property
    def usd_per_h(self) -> float:
        """Return the cost of an hour of training."""
        return self.usd * _SECONDS_PER_HOUR / self.iteration_time_s

    def usd_per_million(self, tokens_per_iteration: float | None) -> float | None:
        """Return what a million tokens cost; None if it is not known how many an iteration trains."""
        return self.usd * 1e6 / tokens_per_iteration if tokens_per_iteration else None
