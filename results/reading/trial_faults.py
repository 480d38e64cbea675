"""Read from a trial's record what failures did to it. The figures' meanings are those of the page on faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNDISTURBED, SURVIVED, RECOVERED, FAILED = "undisturbed", "survived", "recovered", "failed"


@dataclass(frozen=True)
class TrialFaults:
    """The effects of failures on a trial. A field is None where its value is unknown, or its event never happened.

    ``outcome`` is None for a trial in which no failure was planned and none happened. ``training_goodput`` is the time
    in iterations that count, as a share of the training's time. Of several failures, the times are the longest.
    """

    outcome: str | None = None
    reason: str | None = None
    planned: bool = True
    iterations_completed: int | None = None
    iterations_lost: int | None = None
    training_goodput: float | None = None
    time_to_detect_s: float | None = None
    time_to_recover_s: float | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TrialFaults":
        """Read them from the contents of trial.json."""
        faults = facts.get("faults")
        if faults is None:
            return cls()
        disturbances = faults.get("disturbances") or ()
        return cls(
            faults["outcome"],
            faults.get("reason"),
            faults.get("planned", True),
            faults.get("iterations_completed"),
            faults.get("iterations_lost"),
            faults.get("training_goodput"),
            _longest_s(disturbances, "time_to_detect_ns"),
            _longest_s(disturbances, "time_to_recover_ns"),
        )

    @property
    def failed(self) -> bool:
        """Whether the trial ended before its last iteration."""
        return self.outcome == FAILED

    @property
    def failed_unplanned(self) -> bool:
        """Whether it did so although the experiment lets nothing fail that explains it."""
        return self.failed and not self.planned


def _longest_s(disturbances: Any, name: str) -> float | None:
    times_ns = [each.get(name) for each in disturbances]
    return max((time_ns / 1e9 for time_ns in times_ns if time_ns is not None), default=None)
