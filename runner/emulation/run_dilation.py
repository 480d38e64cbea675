"""Choose the dilation of a run: one factor for all its sweep points, so that they can be compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.dilation import choose_dilation, settled_dilation
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.measurement.capacity import measure_capacity_bps
from wanbed.testbed.measurement.condition_choice import check_measurable


@dataclass(frozen=True)
class RunDilation:
    """The dilation factor, and the measured capacity in bit/s. The capacity is None if the factor was not derived."""

    factor: float
    capacity_bps: int | None


def check_link_rates(points: Sequence[SweepPoint], dilation: float | None = None) -> None:
    """Raise InputError for a link that is too slow to be measured on the real clock, dilated by that factor.

    By default that is the file's, and 1 if it is to be derived.
    """
    for point in points:
        if point.spec.clock == "real":
            written = 1.0 if point.spec.dilation == AUTO else float(point.spec.dilation)
            check_measurable(point.topology, written if dilation is None else dilation)


def decide_dilation(points: Sequence[SweepPoint], substrate: str) -> RunDilation:
    """Return the configured factor, or measure the machine's capacity and derive it from the highest demand.

    It is measured with both directions busy at once, and again at the load that the run has at the factor found. In
    virtual time the factor is 1. Raise CapacityError if the machine cannot carry the demand, and the errors of
    ``measure_capacity_bps``.
    """
    if points[0].spec.clock == "virtual":
        return RunDilation(1.0, None)
    factor = points[0].spec.dilation
    demand_bps = max(point.demand.total_bps for point in points)
    if factor != AUTO:
        return RunDilation(choose_dilation(demand_bps, 1, factor), None)
    real_time = any(point.real_time for point in points)

    def at(dilation: float) -> RunDilation:
        capacity_bps = measure_capacity_bps(substrate, math.ceil(demand_bps / dilation))
        return RunDilation(choose_dilation(demand_bps, capacity_bps, AUTO, real_time=real_time), capacity_bps)

    return settled_dilation(at)
