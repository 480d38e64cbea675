"""The settings of a prefill service, fixed before the first request arrives."""

from dataclasses import dataclass
from enum import StrEnum


class FillPolicy(StrEnum):
    """The rule by which a GPU prefills while training leaves it idle.

    ``NONE``: never. ``PLANNED``: only work that ends before training is predicted to need the GPU. ``GREEDY``: whenever
    the GPU is idle, without regard to training's next action.
    """

    NONE = "none"
    PLANNED = "planned"
    GREEDY = "greedy"


@dataclass(frozen=True)
class PrefillSettings:
    """The settings of one service. Times are in nanoseconds. Raises ValueError naming the field.

    ``slo_ns`` is the longest allowed TTFT, including the KV cache's transfer to the decode host.

    A GPU is handed back ``switch_ns`` + ``guard_ns`` before training may need it. How early training may come is
    learned from the last ``window`` iterations: the ``early_quantile`` of how early all actions came, or the earliest
    that the coming action ever came, whichever is earlier. No bubble is filled in the first ``warmup_iterations``.

    At most ``hold_limit`` requests wait for memory or capacity. At most ``candidates`` groups are planned for a request
    before the best is chosen. A command takes ``dispatch_ns`` from the controller to a GPU. ``transfer_latency_ns`` and
    ``transfer_rate_bps`` describe one network path inside the DC.
    """

    slo_ns: int
    policy: FillPolicy = FillPolicy.PLANNED
    chunk_tokens: int = 512
    switch_ns: int = 100_000
    guard_ns: int = 0
    early_quantile: float = 0.95
    window: int = 8
    warmup_iterations: int = 6
    hold_limit: int = 256
    candidates: int = 8
    dispatch_ns: int = 0
    transfer_latency_ns: int = 50_000
    transfer_rate_bps: int = 100_000_000_000

    def __post_init__(self) -> None:
        for name in ("slo_ns", "chunk_tokens", "window", "candidates", "transfer_rate_bps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        for name in ("switch_ns", "guard_ns", "warmup_iterations", "hold_limit", "dispatch_ns", "transfer_latency_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if not 0 <= self.early_quantile <= 1:
            raise ValueError(f"early_quantile: {self.early_quantile} is not between 0 and 1")

    def transfer_ns(self, size_bytes: int) -> int:
        """Return the time to transfer ``size_bytes`` on an idle path in the DC, latency included, rounded up."""
        return self.transfer_latency_ns - (-size_bytes * 8 * 1_000_000_000 // self.transfer_rate_bps)
