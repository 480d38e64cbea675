"""Check a sweep point for all that is refused, in this order: each slice declares its own."""

from collections.abc import Iterator, Sequence

from wanbed.ground.exclusions import Declared, Refusal, as_check
from wanbed.runner.companions.background.resolution import background_refusals
from wanbed.runner.companions.faults.resolution import fault_refusals
from wanbed.runner.companions.link_changes.resolution import links_that_lose_all, links_that_stay_down
from wanbed.runner.companions.losses.resolution import learning_refusals
from wanbed.runner.companions.prefill.resolution import prefill_refusals
from wanbed.runner.companions.registry import COMPANIONS, companion_layer
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.resolve.engine_limits import engine_refusals
from wanbed.runner.resolve.fields_in_use import unused_sections
from wanbed.runner.resolve.replica_times import unmatched_slower
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.variant_resolution import job_datacenters
from wanbed.testbed.network.topology import more_hosts_than_addresses


@as_check
def check_point(point: SweepPointSpec, *, trains: bool) -> Iterator[Declared]:
    """Raise InputError for what is refused of a sweep point before its variants are resolved."""
    spec = point.spec
    if trains:
        yield from links_that_lose_all(spec.topology, point.topology)
        yield from links_that_stay_down(point.topology)
    yield from _of_iterations(spec)
    yield from _of_dilation(spec)
    yield from job_datacenters(spec.jobs, point.topology)
    if spec.engine != "simulate":
        yield from more_hosts_than_addresses(point.topology)


@as_check
def check_variants(point: SweepPointSpec, variants: Sequence[ResolvedVariant], *, trains: bool) -> Iterator[Declared]:
    """Raise InputError for what is refused of a sweep point once its variants are resolved."""
    spec = point.spec
    yield from unmatched_slower(spec, [variant.placement for variant in variants])
    yield from engine_refusals(spec, point.topology, variants)
    yield from prefill_refusals(spec, variants)
    yield from learning_refusals(spec, variants)
    for companion in COMPANIONS:
        layer = companion_layer(companion, "resolution") if getattr(spec, companion, None) else None
        if layer is not None and hasattr(layer, "refusals"):
            yield from layer.refusals(point, variants)
    yield from fault_refusals(point, variants)
    if trains:
        yield from background_refusals(spec, variants)
    yield from unused_sections(spec)


def _of_iterations(spec: ExperimentSpec) -> Iterator[Refusal]:
    warmup, checked = spec.training.warmup, spec.compute.check_iteration
    jobs = ((f"jobs.{position}", job.iterations) for position, job in enumerate(spec.jobs))
    for where, iterations in (("training", spec.training.iterations), *jobs):
        if iterations is not None and iterations <= warmup:
            yield Refusal(
                f"{where}.iterations: {iterations}, of which {warmup} warm up, leaves none to measure: give more "
                "iterations than warmup"
            )
    if checked is not None and checked + 1 >= warmup:
        fault = (
            "is the last of the warm-up, and the profiler slows the iteration after it too, by a second on a GPU"
            if checked + 1 == warmup
            else "is measured, and the profiler slows what it watches"
        )
        earlier = f", or one of the first {warmup - 1}" if warmup > 1 else ""
        yield Refusal(
            f"compute.check_iteration: {checked}, counted from 0, {fault}: give a training.warmup of {checked + 2}"
            f"{earlier}"
        )


def _of_dilation(spec: ExperimentSpec) -> Iterator[Refusal]:
    if spec.dilation in {"auto", 1}:
        return
    if spec.compute.backend.real_time:
        yield Refusal(f"dilation: what {spec.compute.backend.title} computes cannot be dilated: give 1 or auto")
    if any(variant.program is not None for variant in spec.variants):
        yield Refusal("dilation: what a program computes cannot be dilated: give 1 or auto")
