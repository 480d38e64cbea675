"""Provide outcomes that a test chooses."""

from collections.abc import Mapping

from studies.paper.outcome import Outcomes, PartOutcome


def outcome(
    part: str, variant: str, time_s: float | None, latency: str = "40ms", **more: float | int | None
) -> PartOutcome:
    """One whose GPUs train half of the time, unless ``more`` says otherwise."""
    fields = {"gpu_utilization": 0.5, "gpu_utilization_with_prefill": 0.5, **more}
    return PartOutcome(part, latency, variant, time_s, **fields)  # type: ignore[arg-type]


def timed(part: str, times_s: Mapping[str, float]) -> list[PartOutcome]:
    """Iteration times by variant, at 40 ms."""
    return [outcome(part, variant, time_s) for variant, time_s in times_s.items()]


def of(*outcomes: PartOutcome) -> Outcomes:
    """The look-up of these."""
    return Outcomes(outcomes)
