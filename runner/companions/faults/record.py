"""Record the faults of a simulated trial."""

from typing import Any

from wanbed.results.reading.stored_trial import SURVIVED, UNDISTURBED
from wanbed.results.records.run_store import TrialPart
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import SimulatedFailure, Simulation
from wanbed.testbed.network.topology import Topology


def simulated(_: Topology, variant: ResolvedVariant, simulation: Simulation) -> TrialPart:
    """Return the entry ``faults`` of a trial's record, nothing where nothing was to fail.

    The others have gone on without each rank that failed, so that all iterations count.
    """
    if not variant.failures:
        return TrialPart()
    found, iterations = simulation.failures, len(simulation.windows_ns)
    wall_ns = max(end_ns for _, end_ns in simulation.windows_ns)
    faults = {
        "outcome": SURVIVED if found else UNDISTURBED,
        "planned": True,
        "reason": None,
        "recovery": "none",
        "iterations_planned": iterations,
        "iterations_completed": iterations,
        "iterations_lost": 0,
        "began_ns": 0,
        "useful_ns": wall_ns,
        "wall_ns": wall_ns,
        "training_goodput": 1.0,
        "injected": [
            {"fault": str(each.fault), "due_ns": each.fault.at_ns, "applied_ns": each.at_ns, "ranks": [each.rank]}
            for each in found
        ],
        "never_due": [str(fault) for fault in variant.failures[len(found) :]],
        "disturbances": [_disturbance(each) for each in found],
        "placements": [[[place.host.name, place.gpu] for place in variant.placement.places]],
    }
    return TrialPart(facts={"faults": faults})


def _disturbance(failure: SimulatedFailure) -> dict[str, Any]:
    def since(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns - failure.at_ns

    return {
        "faults": [str(failure.fault)],
        "at_ns": failure.at_ns,
        "iterations_lost": 0,
        "lost_work_ns": 0,
        "time_to_detect_ns": since(failure.known_ns),
        "time_to_recover_ns": since(failure.joined_ns),
        "unaware": [],
        "said": [],
    }
