"""Say which trials a simulation can follow packet by packet (``transport: {model: packets}``)."""

from typing import Final

from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.network.topology import Topology

MODELLED_CONGESTION_CONTROLS: Final = frozenset({"cubic", "reno"})
"""The congestion controls that are modelled without loss. The mean of connections takes any other for one of them."""


def reason_not_followed(topology: Topology, variant: ResolvedVariant) -> str | None:
    """Return why the packets of a trial, and of the jobs beside it, cannot be followed; None if they can."""
    if not isinstance(variant, PipelineVariant) or variant.is_star:
        return "where training is no pipeline, or sums over a star"
    if topology.changes:
        return "over links that change"
    if variant.transport.congestion not in MODELLED_CONGESTION_CONTROLS and not draws_packets(
        topology, variant.transport
    ):
        return f"of {variant.transport.congestion} without loss"
    if any(other.transport.model != variant.transport.model for other in variant.beside):
        return "beside jobs whose packets are not"
    return None
