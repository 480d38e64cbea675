"""The settings of a prefill service, made before the first request comes."""

from dataclasses import dataclass
from enum import StrEnum


class FillPolicy(StrEnum):
    """The rule for when a GPU that training leaves idle prefills.

    ``NONE``: never. ``PLANNED``: as far as the work ends before training is expected back. ``GREEDY``: whenever the GPU
    is idle, piece by piece, whatever training does next.
    """

    NONE = "none"
    PLANNED = "planned"
    GREEDY = "greedy"


@dataclass(frozen=True)
class PrefillSettings:
    """Times in nanoseconds. Raises ValueError naming the field.

    ``slo_ns`` is the longest TTFT, the KV cache's way to the decode host included. A GPU is handed back ``switch_ns``
    and ``guard_ns`` before the moment at which, over the last ``window`` iterations, ``early_quantile`` of training's
    actions had not come yet, nor the one that is next ever had. No bubble is filled in the first ``warmup_iterations``.
    ``hold_limit`` is how many requests may wait for memory or capacity, ``candidates`` how many groups are planned for
    one request before the best is taken. ``dispatch_ns`` is what a command takes from the controller to a GPU; the last
    two fields are one path of the network inside the DC.
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
        """Return the time from the first byte's leaving to the last one's arrival on an idle path in the DC.

        It is rounded up.
        """
        return self.transfer_latency_ns - (-size_bytes * 8 * 1_000_000_000 // self.transfer_rate_bps)
