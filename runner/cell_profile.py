"""What a variant's plan is made from: one DP-cell of it, its times and its links."""

from runner.boundary_profiles import between_iterations_ns, boundary_profiles
from runner.resolved_variant import ResolvedVariant
from testbed.topology import Topology
from workloads.schedules.cell_plan import CellProfile


def cell_profile(topology: Topology, variant: ResolvedVariant) -> CellProfile:
    """The cell, as the experiment says it, TCP's ramp included; of several that differ, the slowest links."""
    placement, transport, work = variant.placement, variant.transport, variant.work
    return CellProfile(
        variant.shape,
        variant.pipelines_per_cell,
        work.forward_ns,
        work.backward_ns,
        work.recompute_ns,
        boundary_profiles(topology, placement, transport, work, variant.pipelines_per_cell, clock=variant.clock),
        between_iterations_ns(topology, placement, transport, work, clock=variant.clock),
    )
