"""Record the lower bound of a trial's iterations, so that a summary can say how much is left."""

from dataclasses import asdict
from typing import Any

from runner.bound.lower_bound import lower_bound
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology


def bound_facts(
    topology: Topology, variant: ResolvedVariant, iterations: int, *, computes: bool = False
) -> dict[str, Any]:
    """Return a trial's fact about the lower bound of its ``iterations``: ``time_ns``, and the ``part`` that decides.

    It is null where there is none, and with ``computes``: how long real computation takes is not known beforehand.
    """
    bound = None if computes else lower_bound(topology, variant, iterations)
    return {"bound": None if bound is None else asdict(bound)}
