"""Price ways to train that are no pipelines over the WAN, beside a plan: whole replicas in each datacenter.

Replicas are laid over datacenters in every way that fits, and simulated as the planner simulates pipelines. Where the
file writes costs stage by stage, replicas of fewer stages have the costs of the stages that they merge.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from wanbed.ground.errors import InputError
from wanbed.ground.units import parse_bytes_per_s
from wanbed.results.text import count_text
from wanbed.runner.experiment.compute_spec import ComputeSpec
from wanbed.runner.experiment.training_spec import VariantTrainingSpec
from wanbed.runner.planner.goal import Figures
from wanbed.runner.planner.planning import Plan, PlanningTask
from wanbed.runner.planner.pricing import wan_bytes_by_link, wan_bytes_per_iteration
from wanbed.runner.planner.search_space import IterationCost, free_gpus
from wanbed.runner.resolve.pipeline_resolution import resolve_pipeline
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, PlannedPlacement
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.topology import Topology, as_begun
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


class Family(StrEnum):
    """A way to train across datacenters."""

    PIPELINE = "pipeline"
    HIERARCHICAL = "hierarchical"
    DILOCO = "diloco"
    ATOM = "atom"


@dataclass(frozen=True)
class FamilyLayout:
    """Whole replicas of ``stages`` stages, ``replicas_per_datacenter`` in each datacenter.

    Raises ValueError for a count below 1.
    """

    stages: int
    replicas_per_datacenter: int
    datacenters: int
    microbatches: int

    def __post_init__(self) -> None:
        if min(self.stages, self.replicas_per_datacenter, self.datacenters, self.microbatches) < 1:
            raise ValueError(f"{self}: a count is below 1")

    @property
    def replicas(self) -> int:
        """The number of replicas in all datacenters together."""
        return self.replicas_per_datacenter * self.datacenters


def family_layouts(family: Family, gpus: Mapping[str, int], stages: int, sequences: int) -> tuple[FamilyLayout, ...]:
    """Return the layouts of a family for datacenters with so many GPUs: as many replicas as fit, in each alike.

    Hierarchical data parallelism and ATOM have the whole model on each GPU. A replica of DiLoCo has any number of
    stages that divides ``stages``. Microbatches are such that an iteration trains on about ``sequences`` sequences. ()
    where there are fewer than two datacenters, or one has too few GPUs. Raise ValueError for the family of pipelines.
    """
    if family is Family.PIPELINE:
        raise ValueError("pipelines have candidates of the planner, and no layouts of whole replicas")
    counts = (
        (1,)
        if family in {Family.HIERARCHICAL, Family.ATOM}
        else tuple(n for n in range(1, stages + 1) if stages % n == 0)
    )
    least = min(gpus.values())
    if len(gpus) < 2:
        return ()
    return tuple(
        FamilyLayout(count, least // count, len(gpus), max(round(sequences / (least // count * len(gpus))), 1))
        for count in counts
        if least >= count
    )


_ADD_UP = ("forward", "backward", "backward_weight", "recompute", "optimizer", "gradient")


def merged_stages(compute: ComputeSpec, stages: int, count: int) -> ComputeSpec:
    """Return the costs of the same model in ``count`` stages, each of which merges neighbours of ``stages``.

    Times and gradients of merged stages add up; of the activations those between the new stages are left. What a
    profile or the model's dimensions give is not written, and follows the number of stages anyway. Raise ValueError if
    ``count`` does not divide ``stages``.
    """
    if stages % count:
        raise ValueError(f"{count} stages cannot merge {stages} evenly")
    if count == stages:
        return compute
    each = stages // count
    changed: dict[str, tuple[int, ...]] = {}
    for name in _ADD_UP:
        if (written := getattr(compute, name)) is not None:
            values = written if isinstance(written, tuple) else (written,) * stages
            changed[name] = tuple(sum(values[start : start + each]) for start in range(0, stages, each))
    if isinstance(compute.activation, tuple):
        changed["activation"] = compute.activation[each - 1 :: each]
    return compute.model_copy(update=changed)


_WARMUP = 1
"""The simulated iterations that do not count. Of what follows there is one period: later ones repeat it."""

_SCHEDULES = {Family.HIERARCHICAL: "dp", Family.DILOCO: DILOCO, Family.ATOM: ATOM}


@dataclass(frozen=True)
class FamilyPrice:
    """The best layout of a family. ``counted_per_s`` are tokens a second, or sequences without a model.

    ``sequences`` are those of an iteration; ``iteration_time_s`` and ``wan_bytes`` are means over the iterations from
    one synchronisation to the next. ``tried`` is how many layouts were simulated. ``figures`` have what it costs, None
    without prices.
    """

    family: Family
    layout: str
    sequences: int
    iteration_time_s: float
    counted_per_s: float
    wan_bytes: int
    tried: int
    figures: Figures | None = None


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
        None if price.cost is None else price.figures,
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
    layouts = family_layouts(family, free_gpus(written.topology), task.stages, sequences)
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
            accumulate=1,
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
    effects = replace(effects_of(variant.transport), impairments=False, packets=False)
    simulation = simulate_variant(topology, variant, training.iterations, effects=effects, one_part=True)
    time_s = simulation.iteration_time_ns(training.warmup) / 1e9
    counted_per_s = variant.sequences_per_iteration * task.counted_per_sequence / time_s
    return FamilyPrice(
        family,
        f"{layout.replicas} x {count_text(layout.stages, 'stage')}, {layout.replicas_per_datacenter} in each datacenter"
        + (", in buckets" if variant.overlaps_all_reduce else ""),
        variant.sequences_per_iteration,
        time_s,
        counted_per_s,
        wan_bytes_per_iteration(simulation, training.warmup),
        1,
        _figures(topology, variant, simulation, training.warmup, counted_per_s),
    )


def _figures(
    topology: Topology, variant: PipelineVariant, simulation: Simulation, warmup: int, counted_per_s: float
) -> Figures | None:
    """Return what a layout costs, None without prices. Of what is sent, that of the measured iterations counts."""
    if topology.prices is None:
        return None
    sent_bytes = wan_bytes_by_link(topology, simulation, simulation.measured_ns(warmup))
    egress_usd = topology.prices.egress_usd(sent_bytes) / simulation.measured_iterations(warmup)
    cost = IterationCost(topology.prices.gpus_usd_per_h(variant.placement.gpus_by_datacenter), egress_usd)
    return cost.figures(simulation.iteration_time_ns(warmup) / 1e9, counted_per_s)


def _no_placement(written: WrittenVariant, pipelines: int) -> PlannedPlacement:
    raise InputError(f"{written.field}.placement: whole replicas have no planned placement")


SYNC_EVERY: Final = 100
"""The iterations between synchronisations of replicas, where nothing else was asked for."""

_SYNCHRONIZED: Final = (Family.DILOCO, Family.ATOM)

_NOT_THE_SAME: Final = (
    "its tokens a second are not worth the same. Replicas that synchronise seldom learn otherwise: compare losses over "
    "time (docs/loss-against-time.md)"
)

_NOTES: Final = {
    Family.DILOCO: _NOT_THE_SAME,
    Family.ATOM: f"{_NOT_THE_SAME}. Memory of activations and gradients is not known here",
    Family.HIERARCHICAL: "each GPU holds the whole model; whether it fits is not known here",
}


@dataclass(frozen=True)
class FamiliesAsked:
    """The families to price, each once. ``swap`` is the rate at which ATOM loads layers, like 12GB/s.

    ``sync_every`` is the number of iterations between synchronisations of DiLoCo and ATOM, None for ``SYNC_EVERY``.
    Raises InputError, which names options of the command, for a value that no family takes, and for ATOM without a
    rate.
    """

    families: tuple[Family, ...] = ()
    sync_every: int | None = None
    swap: str | None = None

    def __post_init__(self) -> None:
        if self.sync_every is not None and not set(_SYNCHRONIZED) & set(self.families):
            raise InputError("--sync-every: only DiLoCo and ATOM synchronise: give --families diloco or atom too")
        if self.sync_every is not None and self.sync_every < 1:
            raise InputError(f"--sync-every: {self.sync_every} is below 1")
        if self.swap is not None and Family.ATOM not in self.families:
            raise InputError("--swap: only ATOM swaps layers: give --families atom too")
        if Family.ATOM not in self.families:
            return
        if self.swap is None:
            raise InputError("--families atom: say how fast layers are loaded into a GPU, like --swap 12GB/s")
        try:
            parse_bytes_per_s(self.swap)
        except ValueError as refusal:
            raise InputError(f"--swap: {refusal}") from None

    @staticmethod
    def named(names: Iterable[str], sync_every: int | None = None, swap: str | None = None) -> "FamiliesAsked":
        """Return the families of these names. Raise InputError for one that is not known."""
        found: list[Family] = []
        for name in names:
            try:
                found.append(Family(name.strip()))
            except ValueError:
                known = ", ".join(each.value for each in Family)
                raise InputError(f"--families: {name.strip()!r} is not known: give some of {known}") from None
        return FamiliesAsked(tuple(dict.fromkeys(found)), sync_every, swap)

    def prices(
        self, written: WrittenVariant, task: PlanningTask, plan: Plan, tell: Callable[[str], None]
    ) -> tuple[FamilyPrice, ...]:
        """Return the price of each family beside the plan of ``written``, about as many sequences an iteration.

        What does not fit is told in a line, and left out. Raise InputError for what cannot be simulated.
        """
        own = planned_family(task, plan)
        every = self.sync_every or SYNC_EVERY
        found: list[FamilyPrice] = []
        for family in self.families:
            if family is Family.PIPELINE:
                found.append(own)
            elif price := priced_family(family, written, task, own.sequences, every, swap=self.swap):
                found.append(price)
            else:
                tell(f"{family}: it needs whole replicas in two datacenters or more, and none fits")
        return tuple(found)


def family_notes(families: Sequence[FamilyPrice]) -> tuple[str, ...]:
    """Return notes on the families that are among these prices, a line each."""
    present = {each.family for each in families}
    return tuple(f"{family}: {note}" for family, note in _NOTES.items() if family in present)


def same_worth(family: Family) -> bool:
    """Return whether a token teaches what one of a pipeline does."""
    return family not in _SYNCHRONIZED
