"""Price the layouts of whole replicas by simulation, as the planner prices pipelines."""

from dataclasses import dataclass, replace
from typing import Any

from wanbed.ground.strict_model import InputError
from wanbed.results.text import count_text
from wanbed.runner.experiment.training_spec import VariantTrainingSpec
from wanbed.runner.planner.families.family_layout import Family, FamilyLayout, family_layouts
from wanbed.runner.planner.families.merged_stages import merged_stages
from wanbed.runner.planner.planning import Plan, PlanningTask
from wanbed.runner.planner.pricing import wan_bytes_per_iteration
from wanbed.runner.resolve.pipeline_resolution import resolve_pipeline
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, PlannedPlacement
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import effects_of
from wanbed.testbed.network.course_extremes import as_begun
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO

_WARMUP = 1
"""The simulated iterations that do not count. Of what follows there is one period: later ones repeat it."""
_SCHEDULES = {Family.HIERARCHICAL: "dp", Family.DILOCO: DILOCO, Family.ATOM: ATOM}


@dataclass(frozen=True)
class FamilyPrice:
    """The best layout of a family. ``counted_per_s`` are tokens a second, or sequences without a model.

    ``sequences`` are those of an iteration; ``iteration_time_s`` and ``wan_bytes`` are means over the iterations from
    one synchronisation to the next. ``tried`` is how many layouts were simulated.
    """

    family: Family
    layout: str
    sequences: int
    iteration_time_s: float
    counted_per_s: float
    wan_bytes: int
    tried: int


def planned_family(task: PlanningTask, plan: Plan) -> FamilyPrice:
    """Return the planner's answer as the price of the family of pipelines."""
    price, candidate = plan.chosen.price, plan.chosen.candidate
    layout = f"{candidate.pipelines} x {count_text(candidate.stages, 'stage')} over {', '.join(candidate.datacenters)}"
    return FamilyPrice(
        Family.PIPELINE,
        layout,
        candidate.pipelines * task.microbatches,
        price.iteration_time_s,
        price.tokens_per_s,
        price.wan_bytes,
        plan.simulations,
    )


def priced_family(
    family: Family,
    written: WrittenVariant,
    task: PlanningTask,
    sequences: int,
    sync_every: int,
    *,
    swap: str | None = None,
) -> FamilyPrice | None:
    """Return the layout of a family with the most tokens a second, None if none fits.

    ``written`` is the variant whose transport it takes, ``swap`` the rate of ATOM's loads as a file writes it. Raise
    InputError for what cannot be simulated.
    """
    gpus = {each.name: sum(host.gpus for host in each.hosts) for each in written.topology.datacenters}
    layouts = family_layouts(family, gpus, task.stages, sequences)
    # Small buckets hide behind the backward, and each pays the latency of every pass: which is better depends on both.
    overlaps = (True, False) if family is Family.HIERARCHICAL else (False,)
    options = _options(family, sync_every, swap)
    prices = [
        _priced(family, _written(family, written, layout, options, stages=task.stages, overlap=overlap), layout, task)
        for layout in layouts
        for overlap in overlaps
    ]
    if not prices:
        return None
    best = max(prices, key=lambda each: each.counted_per_s)
    return replace(best, tried=len(prices))


def _options(family: Family, sync_every: int, swap: str | None) -> dict[str, Any]:
    """Return the options of a variant of the family."""
    match family:
        case Family.DILOCO:
            return {"sync_every": sync_every}
        case Family.ATOM:
            return {"sync_every": sync_every, "swap": swap}
        case _:
            return {}


def _written(
    family: Family,
    written: WrittenVariant,
    layout: FamilyLayout,
    options: dict[str, Any],
    *,
    stages: int,
    overlap: bool,
) -> WrittenVariant:
    """Return a variant of the family in place of ``written``, with its transport and the layout's replicas.

    ``stages`` are those that the costs of the file are of.
    """
    spec, variant = written.spec, written.variant
    transport = variant.transport.model_copy(
        update={
            "sharing": "none",
            "pipelines_per_cell": "auto",
            "all_reduce": "hierarchical" if family is Family.HIERARCHICAL else "ring",
            "all_reduce_overlap": overlap,
        }
    )
    # A synchronisation follows the last iteration of its period, and is awaited in the one after it.
    iterations = _WARMUP + options.get("sync_every", 1)
    changed: dict[str, Any] = {
        "schedule": _SCHEDULES[family],
        "options": options,
        "placement": None,
        "transport": transport,
        "training": VariantTrainingSpec(
            stages=layout.stages,
            pipelines=layout.replicas,
            microbatches=layout.microbatches,
            # Replicas that train alone exchange no gradient norm.
            optimizer_waits=variant.training.optimizer_waits if family is Family.HIERARCHICAL else "own",
        ),
    }
    own = variant.model_copy(update=changed)
    training = spec.training.model_copy(update={"iterations": iterations, "warmup": _WARMUP})
    variants = tuple(own if position == written.position else each for position, each in enumerate(spec.variants))
    changes = {
        "variants": variants,
        "training": training,
        "compute": merged_stages(spec.compute, stages, layout.stages),
    }
    return replace(written, spec=spec.model_copy(update=changes))


def _priced(family: Family, written: WrittenVariant, layout: FamilyLayout, task: PlanningTask) -> FamilyPrice:
    variant: PipelineVariant = resolve_pipeline(written, _no_placement).without_variation()
    training, topology = written.spec.training, as_begun(written.topology)
    effects = replace(effects_of(variant.transport), impairments=False)
    simulation = simulate_variant(topology, variant, training.iterations, effects=effects, one_part=True)
    time_s = simulation.iteration_time_ns(training.warmup) / 1e9
    return FamilyPrice(
        family,
        f"{layout.replicas} x {count_text(layout.stages, 'stage')}, {layout.replicas_per_datacenter} in each datacenter"
        + (", in buckets" if variant.overlaps_all_reduce else ""),
        variant.sequences_per_iteration,
        time_s,
        variant.sequences_per_iteration * task.counted_per_sequence / time_s,
        wan_bytes_per_iteration(simulation, training.warmup),
        1,
    )


def _no_placement(written: WrittenVariant, pipelines: int) -> PlannedPlacement:
    raise InputError(f"{written.field}.placement: whole replicas have no planned placement")
