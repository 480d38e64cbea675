"""Decide the dilation of a whole run: one factor for all its sweep points, so that they can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.resolve.dilation import choose_dilation
from runner.resolve.experiment import SweepPoint
from testbed.measurement.capacity import measure_capacity_bps


@dataclass(frozen=True)
class RunDilation:
    """The factor, and the capacity it was derived from; None where the experiment gives the factor."""

    factor: float
    capacity_bps: int | None


def decide_dilation(points: Sequence[SweepPoint], substrate: str) -> RunDilation:
    """Take the factor that the experiment gives, or measure the machine and derive it from the largest demand.

    In virtual time it is 1.

    Raises CapacityError if the machine cannot carry the demand, and what measuring its capacity raises.
    """
    if points[0].spec.clock == "virtual":
        return RunDilation(1.0, None)
    factor = points[0].spec.dilation
    demand_bps = max(point.demand.total_bps for point in points)
    if factor != "auto":
        return RunDilation(choose_dilation(demand_bps, 1, factor), None)
    capacity_bps = measure_capacity_bps(substrate, demand_bps)
    real_time = any(point.spec.compute.backend.real_time for point in points)
    return RunDilation(choose_dilation(demand_bps, capacity_bps, factor, real_time=real_time), capacity_bps)
