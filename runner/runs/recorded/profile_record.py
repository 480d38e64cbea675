"""Record under which conditions a compute profile was measured, where one gives the times of a run."""

from collections.abc import Iterable
from typing import Any

from wanbed.runner.resolve.experiment import SweepPoint


def profile_facts(point: SweepPoint) -> dict[str, Any]:
    """Return a sweep point's fact on its measured compute profile; none without one.

    ``profile_conditions`` has the device's driver, the versions, and whether torch used only kernels that give the same
    bits in every run (``deterministic``, null if the file does not say).
    """
    conditions = point.profile_conditions
    if conditions is None:
        return {}
    kept = conditions.model_dump(mode="json", include={"measured_at", "driver", "versions", "deterministic"})
    return {"profile_conditions": kept}


def deterministic_profile_lines(points: Iterable[SweepPoint]) -> list[str]:
    """Return a line for each compute profile that was measured with deterministic kernels only."""
    names = dict.fromkeys(
        point.spec.compute.times_profile
        for point in points
        if point.profile_conditions is not None and point.profile_conditions.deterministic
    )
    return [
        f"compute.profile {name}: measured with deterministic kernels only, which are slower on a GPU than those with "
        "which models are trained in practice"
        for name in names
    ]
