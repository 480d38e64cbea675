"""Resolve a variant that replays a trace: its ranks placed on GPUs, and what it cannot be combined with refused."""

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError, prefixed
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.all_reduce_check import check_all_reduce
from wanbed.runner.resolve.placement import ConfiguredPlacement, Placement, place_ranks, place_stages
from wanbed.runner.resolve.trial_extent import check_trace_extent
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.trace.resolution.replayed import replayed_trace
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant


def resolve_trace(written: WrittenVariant) -> TraceVariant:
    """Return the variant, resolved. Raise InputError if the trace cannot be replayed, or not with this variant."""
    _check_alone(written)
    assert written.spec.compute.trace is not None
    with prefixed("compute.trace: "):
        trace = replayed_trace(written.directory / written.spec.compute.trace)
    placement = _placement(written, len(trace.ranks))
    check_all_reduce(written, placement)
    resolved = TraceVariant(spec=written.variant, placement=placement, trace=trace, seed=written.spec.seed)
    check_trace_extent(written, trace, placement.places, resolved.rings)
    return resolved


def _check_alone(written: WrittenVariant) -> None:
    """Raise InputError for what a trace is not combined with, because it has its own or is not replayed with it."""
    spec, variant, here = written.spec, written.variant, written.field
    own = "the trace has its own"
    if spec.model is not None:
        raise InputError(f"model: {own}: leave model out")
    if spec.prefill is not None:
        raise InputError("prefill: nothing prefills beside a replayed trace: leave the section out")
    for name in ("stages", "pipelines", "microbatches", "memory_bound", "virtual_stages"):
        if getattr(spec.training, name) != TrainingSpec.model_fields[name].default:
            raise InputError(f"training.{name}: {own} ranks and work: leave {name} out")
        if getattr(variant.training, name) is not None:
            raise InputError(f"{here}.training.{name}: {own} ranks and work: leave {name} out")
    if variant.options:
        raise InputError(f"{here}.options: a trace takes none: leave options out")
    if variant.transport.sharing != "none":
        raise InputError(
            f"{here}.transport.sharing: {variant.transport.sharing}: each message of a trace goes over the connections "
            "of its own two hosts: leave sharing out"
        )
    if not variant.transport.overlap:
        raise InputError(
            f"{here}.transport.overlap: false: {own} order of computations and messages: leave overlap out"
        )
    if variant.transport.all_reduce_overlap != TransportSpec.model_fields["all_reduce_overlap"].default:
        raise InputError(
            f"{here}.transport.all_reduce_overlap: {own} all-reduces, which overlap as it says: leave "
            "all_reduce_overlap out"
        )
    if variant.placement == AUTO:
        raise InputError(
            f"{here}.placement: auto: the planner places stages of a schedule: name the datacenter of each rank"
        )


def _placement(written: WrittenVariant, ranks: int) -> Placement:
    configured: ConfiguredPlacement | None = written.variant.placement
    if configured is None:
        return place_ranks(written.topology, ranks, "compute.trace")
    if len(configured) != ranks or not all(isinstance(name, str) for name in configured):
        raise InputError(
            f"{written.field}.placement: {shown(list(configured))} for {ranks} ranks: name one datacenter for each"
        )
    with prefixed(f"{written.field}."):
        return place_stages(written.topology, ranks, 1, configured)
