"""Record the lower bounds of a trial, so that a summary can say how much is left."""

from dataclasses import asdict
from typing import Any

from runner.bound.lower_bound import lower_bounds
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology


def bound_facts(
    topology: Topology, variant: ResolvedVariant, iterations: int, *, computes: bool = False
) -> dict[str, Any]:
    """Return a trial's facts about the lower bounds of its ``iterations``: each ``time_ns``, and the ``part``.

    They are null where there are none, and with ``computes``: how long real computation takes is not known beforehand.
    """
    bounds = None if computes else lower_bounds(topology, variant, iterations)
    return {
        "period_bound": None if bounds is None else asdict(bounds.period),
        "makespan_bound": None if bounds is None else asdict(bounds.makespan),
    }
