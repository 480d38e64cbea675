"""Collect the costs of one DP-cell, from which a planned schedule makes its plan."""

from wanbed.runner.resolve.boundary_costs import between_iterations_ns, boundary_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.schedules.planning.cell_plan import CellCosts


def cell_costs(topology: Topology, variant: PipelineVariant) -> CellCosts:
    """Return the stage costs and boundary costs of a DP-cell of the variant, slow start of TCP included.

    If DP-cells differ, the result has the slowest links of all.
    """
    placement, transport, work = variant.placement, variant.transport, variant.work
    return CellCosts(
        variant.shape,
        variant.pipelines_per_cell,
        work.forward_ns,
        work.backward_ns,
        work.recompute_ns,
        boundary_costs(topology, placement, transport, work, variant.pipelines_per_cell),
        between_iterations_ns(topology, placement, transport, work),
        backward_input_ns=work.backward_input_ns,
        backward_weight_ns=work.backward_weight_ns,
        sends_block=variant.sends_block,
    )
