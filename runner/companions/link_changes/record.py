"""List the changes of links that fell into a simulated trial, as the table of its changes has them."""

from dataclasses import asdict
from itertools import takewhile

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import LinkChange
from wanbed.results.records.trial_tables import CHANGES_TABLE
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Topology


def simulated(topology: Topology, _: ResolvedVariant, simulation: Simulation) -> TrialPart:
    """Return the changes of a simulated trial, in which each is made when it is due."""
    if not topology.changes:
        return TrialPart()
    return TrialPart({CHANGES_TABLE: link_changes(topology, int(simulation.spans.end_ns.max(initial=0)))})


def link_changes(topology: Topology, end_ns: int) -> list[LinkChange]:
    """Return the first conditions of each direction that changes, those at 0, and each change until ``end_ns``.

    Training begins at 0, and simulated links change when they are due.
    """
    rows = [
        _row(ends, at_ns, conditions)
        for link in topology.wan
        for ends, course in link.course_by_ends.items()
        for at_ns, conditions in (
            (0, course.first),
            *(
                (change.at_ns, change.conditions)
                for change in takewhile(lambda change: change.at_ns <= end_ns, course.changes_after(0))
            ),
        )
    ]
    return sorted(rows, key=lambda row: row.due_ns)


def _row(ends: tuple[str, str], at_ns: int, conditions: LinkConditions) -> LinkChange:
    return LinkChange(
        at_ns,
        at_ns,
        *ends,
        conditions.up,
        conditions.latency_ns,
        conditions.rate_bps,
        conditions.node_pair_rate_bps,
        **asdict(conditions.impairments),
    )
