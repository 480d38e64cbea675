"""Provide an emulated run and a simulator whose iteration times a test chooses."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER, Simulation
from wanbed.testbed.network.topology import Topology

S = 1_000_000_000
CONNECTIONS = {("east-0", "west-0"): 1}
LATENCIES = ("10ms", "40ms")
VARIANTS = ("gpipe", "1f1b")
EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "100Mbit"},
    },
    "training": {"microbatches": 2, "iterations": 3, "warmup": 1},
    "variants": [{"name": name, "schedule": name} for name in VARIANTS],
    "sweep": {"topology.wan.latency": list(LATENCIES)},
}

Times = Mapping[tuple[int, str], Sequence[float]]


def write_run(
    root: Path,
    times_s: Times,
    *,
    experiment: Mapping[str, Any] = EXPERIMENT,
    manifest: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    within_tolerance: bool = True,
) -> Path:
    """``times_s`` holds the iteration time of every repeat, by sweep point and variant; the first takes twice that.

    ``manifest`` and ``facts`` (of every trial) replace what a run would say.
    """
    asked = parse_experiment(experiment, "test", Path())
    store = RunStore.create(root, asked.name, {**gather_manifest(asked), **(manifest or {})}, asked.config_hash)
    for (point, variant), repeats_s in times_s.items():
        there = CalibrationRow("east", "west", "wan", 20.0, 20.1, 95e6, 94e6, {}, within_tolerance)
        back = there._replace(source="west", destination="east")
        store.write_calibration(point, [there, back])
        for repeat, time_s in enumerate(repeats_s):
            said = {"warmup_iterations": 1, "connections": [["east-0", "west-0", 1]], **(facts or {})}
            store.write_trial(TrialRecord(TrialId(point, variant, repeat), _logs(round(time_s * S)), {}, said))
    store.update_manifest({"complete": True})
    return store.path


def _logs(iteration_ns: int) -> list[SpanLogContents]:
    bounds_ns = (0, 2 * iteration_ns, 3 * iteration_ns, 4 * iteration_ns)
    spans = tuple(
        Span("forward", iteration, 0, bounds_ns[iteration], bounds_ns[iteration + 1]) for iteration in range(3)
    )
    return [
        SpanLogContents(RankPlace(rank, f"{datacenter}-0", datacenter, 0, 0, rank), spans, complete=True)
        for rank, datacenter in enumerate(("east", "west"))
    ]


def simulation(spans: Sequence[tuple[int, str, int, int, int, int, int]]) -> Simulation:
    """Of spans as (rank, kind, iteration, microbatch, start_ns, end_ns, peer)."""
    rows = [
        (rank, KIND_CODES[kind], iteration, microbatch, start_ns, end_ns, 0, peer)
        for rank, kind, iteration, microbatch, start_ns, end_ns, peer in spans
    ]
    return Simulation(SpanColumns.of_training(np.array(rows, np.int64)), (), CONNECTIONS)


class Simulator:
    """Stands for the simulator: ``answer`` gives the seconds of an iteration after warm-up; the first takes twice that.

    ``answer`` is asked with the topology and the variant.
    """

    def __init__(self, answer: Callable[[Topology, ResolvedVariant], float]) -> None:
        self._answer = answer
        self.asked: list[tuple[TcpEffects | None, float]] = []

    def __call__(
        self,
        topology: Topology,
        variant: ResolvedVariant,
        iterations: int,
        *,
        effects: TcpEffects | None = None,
        dilation: float = 1.0,
    ) -> Simulation:
        self.asked.append((effects, dilation))
        length_ns = round(self._answer(topology, variant) * S)
        ends_ns = [(2 + iteration) * length_ns for iteration in range(iterations)]
        starts_ns = [0, *ends_ns]
        return simulation(
            [(0, "forward", each, 0, starts_ns[each], end_ns, NO_PEER) for each, end_ns in enumerate(ends_ns)]
        )


def constant(time_s: float) -> Simulator:
    """Every iteration takes as long."""
    return Simulator(lambda *_: time_s)
