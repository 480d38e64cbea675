"""Run one trial of the engine ``simulate``: simulate a variant and return the record that a run's store keeps."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wanbed.ground.errors import SimulationError
from wanbed.results.records.run_store import TrialRecord, write_trial
from wanbed.results.records.span_log import RankPlace
from wanbed.results.records.trial_columns import TrialSpans
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.runner.companions.registry import companion_layers
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.followed_packets import follows_packets
from wanbed.runner.resolve.known_misses import disagreement, misses_of
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.trial_facts import TrialCourse, trial_facts
from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class SimulatedTrial:
    """All that a process needs to simulate the trial ``id``.

    ``planning_profile`` is the compute profile whose times stand for those of a computation in real time, None without
    one.
    """

    id: TrialId
    values: Mapping[str, str]
    topology: Topology
    variant: ResolvedVariant
    iterations: int
    warmup: int
    tokens_per_iteration: int | None
    planning_profile: str | None

    @classmethod
    def of(cls, trial: TrialId, point: SweepPoint) -> "SimulatedTrial":
        """Return the specification of a trial of that sweep point."""
        compute, training = point.spec.compute, point.spec.training
        variant = point.variant(trial.variant).in_repeat(trial.repeat)
        if point.faults.faults:
            # Without any, what the manifest has computed of the variant stays known.
            variant = replace(variant, failures=point.faults.faults)
        return cls(
            trial,
            point.values,
            point.topology,
            variant,
            point.iterations(variant),
            training.warmup,
            point.tokens_of(variant),
            compute.times_profile if compute.backend.real_time and compute.from_run is None else None,
        )

    def __str__(self) -> str:
        """Return sweep point and variant, as a message names them."""
        values = ", ".join(f"{path}={value}" for path, value in self.values.items())
        return ": ".join(filter(None, (values, self.variant.name)))


def simulate_into(
    run: Path,
    trial: SimulatedTrial,
    simulate: Simulate,
    report: Callable[[float], None] | None = None,
    written: WrittenSpans | None = None,
) -> Exception | None:
    """Simulate a trial and keep it; return a foreseen failure, to be raised where it can end the sweep.

    ``report`` is told the share of the trial that is simulated, several times a second. ``written`` gets its spans.
    """
    try:
        write_trial(run, simulated_record(trial, simulate, report), written)
    except SimulationError as failure:
        return SimulationError(f"{trial}: {failure}")
    except MemoryError:
        return TrialError(f"{trial}: not enough memory to simulate it: give fewer --jobs, or a smaller experiment")
    except OSError as fault:
        return fault
    return None


def simulated_record(
    trial: SimulatedTrial, simulate: Simulate, report: Callable[[float], None] | None = None
) -> TrialRecord:
    """Simulate a trial, and gather what is kept; ``report`` as in ``simulate_into``. Raises SimulationError."""
    variant, effects = trial.variant, effects_of(trial.variant.transport)
    simulation = simulate(trial.topology, variant, trial.iterations, effects=effects, pulse=report)
    misses = misses_of(trial.topology, variant, trial.iterations)
    without = replace(effects, packets=False)
    if not follows_packets(trial.topology, variant, trial.iterations):
        effects = without
    else:
        by_mean = simulate(trial.topology, variant, trial.iterations, effects=without)
        misses += disagreement(*(_period_ns(each, trial.warmup) for each in (simulation, by_mean)))
    parts = [layer.simulated(trial.topology, variant, simulation) for layer in companion_layers("record")]
    owners = [
        RankPlace(rank, place.host.name, place.datacenter, place.gpu, place.pipeline, place.stage)
        for rank, place in enumerate(variant.placement.places)
    ]
    owners += [log.header for part in parts for log in part.logs]
    course = TrialCourse(
        iterations=trial.iterations,
        warmup=trial.warmup,
        tokens_per_iteration=trial.tokens_per_iteration,
        dilation=1.0,
        connections=simulation.connections,
        sums=simulation.sums,
        dropped=simulation.dropped,
        while_all_ran_ns=simulation.while_all_ran_ns,
        varies=variant.varies or draws_packets(trial.topology, variant.transport),
    )
    facts = {
        **trial_facts(trial.topology, variant, course),
        **({"known_misses": [each.document() for each in misses]} if misses else {}),
        **({"equal_parts": simulation.copies} if simulation.copies > 1 else {}),
        "tcp_effects": asdict(effects),
        "torch_times_of_profile": trial.planning_profile,
        "losses": [],
        **{name: fact for part in parts for name, fact in part.facts.items()},
    }
    tables = {table: rows for part in parts for table, rows in part.tables.items()}
    return TrialRecord(trial.id, TrialSpans(owners, simulation.spans), tables, facts)


def _period_ns(simulation: Simulation, warmup: int) -> float:
    """Return the period of training; if no iteration is measured, the end of the last."""
    if simulation.measured_iterations(warmup):
        return simulation.iteration_time_ns(warmup)
    return float(simulation.spans.end_ns.max())
