"""Describe one DP-cell of a variant to the schedule that plans it: its times and its links."""

from runner.resolve.boundary_costs import between_iterations_ns, boundary_costs
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology
from workloads.schedules.planning.cell_plan import CellCosts


def cell_costs(topology: Topology, variant: ResolvedVariant) -> CellCosts:
    """Return the profile of a cell, as the experiment describes it, TCP's ramp included.

    Of several cells that differ, it has the slowest links.
    """
    placement, transport, work = variant.placement, variant.transport, variant.work
    return CellCosts(
        variant.shape,
        variant.pipelines_per_cell,
        work.forward_ns,
        work.backward_ns,
        work.recompute_ns,
        boundary_costs(topology, placement, transport, work, variant.pipelines_per_cell, clock=variant.clock),
        between_iterations_ns(topology, placement, transport, work, clock=variant.clock),
    )
