"""Run one trial of the engine ``simulate``: simulate a variant and return the record that a run's store keeps."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wanbed.results.records.jobs.background_columns import BACKGROUND, BackgroundSample
from wanbed.results.records.run_store import Rows, TrialRecord, write_trial
from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import SpanLogHeader
from wanbed.results.records.trial_columns import TrialCounters, TrialSpans
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import BACKGROUND_TABLE, CHANGES_TABLE, LINK_TABLE, PREFILL_TABLE, TrialTable
from wanbed.runner.companions.faults.simulation.fault_facts import simulated_fault_facts
from wanbed.runner.companions.link_changes.simulation import link_changes
from wanbed.runner.companions.prefill.record import prefill_facts, prefill_rows
from wanbed.runner.known_misses.classification import known_miss_facts
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.packets.packet_draws import draws_packets
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.runs.recorded.trial_facts import TrialCourse, trial_facts
from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.runner.tcp.effects import effects_of
from wanbed.testbed.network.topology import Topology

SAMPLE_INTERVAL_NS = 100_000_000
MAX_SAMPLES = 1000
MAX_SAMPLE_ROWS = 1_000_000

NO_PLACE = -1
"""The pipeline and the stage of a GPU that does not train."""


@dataclass(frozen=True)
class TrialSpec:
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
    def of(cls, trial: TrialId, point: SweepPoint) -> "TrialSpec":
        """Return the specification of a trial of that sweep point."""
        compute, training = point.spec.compute, point.spec.training
        variant = replace(point.variant(trial.variant).in_repeat(trial.repeat), failures=point.faults.faults)
        return cls(
            trial,
            point.values,
            point.topology,
            variant,
            point.iterations(variant),
            training.warmup,
            point.tokens_per_iteration,
            compute.times_profile if compute.backend.real_time and compute.from_run is None else None,
        )

    def __str__(self) -> str:
        """Return sweep point and variant, as a message names them."""
        values = ", ".join(f"{path}={value}" for path, value in self.values.items())
        return ": ".join(filter(None, (values, self.variant.name)))


def simulate_into(run: Path, trial: TrialSpec, simulate: Simulate) -> Exception | None:
    """Simulate a trial and keep it; return a foreseen failure, to be raised where it can end the sweep."""
    try:
        write_trial(run, simulated_record(trial, simulate))
    except SimulationError as failure:
        return SimulationError(f"{trial}: {failure}")
    except MemoryError:
        return TrialError(f"{trial}: not enough memory to simulate it: give fewer --jobs, or a smaller experiment")
    except OSError as fault:
        return fault
    return None


def simulated_record(trial: TrialSpec, simulate: Simulate) -> TrialRecord:
    """Simulate a trial, and gather what is kept. Raises SimulationError."""
    variant, effects = trial.variant, effects_of(trial.variant.transport)
    simulation = simulate(trial.topology, variant, trial.iterations, effects=effects)
    facts, requests = _prefill(variant, simulation)
    owners = [
        SpanLogHeader(rank, place.host.name, place.datacenter, place.gpu, place.pipeline, place.stage)
        for rank, place in enumerate(variant.placement.places)
    ]
    owners += _pool_owners(variant, len(owners))
    tables: dict[TrialTable, Rows] = {
        LINK_TABLE: link_counters(trial.topology, simulation),
        PREFILL_TABLE: requests,
    }
    if trial.topology.changes:
        tables[CHANGES_TABLE] = link_changes(trial.topology, int(simulation.spans.end_ns.max(initial=0)))
    if simulation.background:
        tables[BACKGROUND_TABLE] = background_samples(simulation)
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
    return TrialRecord(
        trial.id,
        TrialSpans(owners, simulation.spans),
        tables,
        facts={
            **trial_facts(trial.topology, variant, course),
            **known_miss_facts(trial.topology, variant),
            **simulated_fault_facts(variant, simulation, trial.iterations),
            "tcp_effects": asdict(effects),
            "torch_times_of_profile": trial.planning_profile,
            "losses": [],
            **facts,
        },
    )


def _prefill(variant: ResolvedVariant, simulation: Simulation) -> tuple[dict[str, Any], list[PrefillRequest]]:
    """Return the facts and the requests of the prefill service, empty where there is none."""
    service, prefill = variant.service, simulation.prefill
    if service is None or prefill is None:
        return {}, []
    facts = prefill_facts(
        service,
        prefill.records,
        deadline_overruns=prefill.deadline_overruns,
        overrun_ns=prefill.overrun_ns,
        margins_ns=prefill.margins_ns,
    )
    return {"prefill": facts}, prefill_rows(service, prefill.records, prefill.output_tokens)


def _pool_owners(variant: ResolvedVariant, first: int) -> list[SpanLogHeader]:
    """Return the span-log headers of the pool's GPUs, which have no place in training."""
    datacenters = () if variant.service is None else variant.service.datacenters
    return [
        SpanLogHeader(gpu.number, gpu.host, datacenter.name, gpu.index, NO_PLACE, NO_PLACE)
        for datacenter in datacenters
        for gpu in datacenter.gpus
        if gpu.number >= first
    ]


def link_counters(topology: Topology, simulation: Simulation) -> TrialCounters:
    """Return the counters of every directed WAN link, and of every directed node pair that something crossed.

    Links count what training sent; flows in the background have lines of their own.
    They are read at the start, every 100 ms, and at the end; of a long trial, or one of many node pairs, at as many
    evenly spaced times as make ``MAX_SAMPLES``, and ``MAX_SAMPLE_ROWS`` in all.
    """
    home = {host.name: host.datacenter for host in topology.hosts}
    crossed = [traffic for traffic in simulation.traffic if traffic.sent_by(np.array([traffic.last_ns]))[0] > 0]
    links = [ends for link in topology.wan for ends, _ in link.directions]
    last = [int(simulation.spans.end_ns.max(initial=0)), *(traffic.last_ns for traffic in crossed)]
    flows = [flow.sent for flow in simulation.background]
    times_ns = _sample_times_ns(max(last), len(links) + len(crossed) + len(flows)) if links else np.zeros(0, np.int64)
    on_link: dict[tuple[str, str], npt.NDArray[np.int64]] = defaultdict(lambda: np.zeros(len(times_ns), np.int64))
    pairs = []
    for traffic in crossed:
        sent = np.rint(traffic.sent_by(times_ns)).astype(np.int64)
        pairs.append(sent)
        on_link[home[traffic.source], home[traffic.destination]] += sent
    of_flows = [np.rint(flow.sent_by(times_ns)).astype(np.int64) for flow in flows]
    counts = [*(on_link[link] for link in links), *pairs, *of_flows]
    return TrialCounters(
        times_ns,
        [
            *(("link", *link) for link in links),
            *(("node_pair", traffic.source, traffic.destination) for traffic in crossed),
            *((BACKGROUND, flow.source, flow.destination) for flow in flows),
        ],
        np.array(counts, np.int64).reshape(len(counts), len(times_ns)),
    )


def background_samples(simulation: Simulation) -> list[BackgroundSample]:
    """Return what each flow in the background had carried at the start, every 100 ms, and at the end."""
    end_ns = int(simulation.spans.end_ns.max(initial=0))
    times_ns = _sample_times_ns(end_ns, len(simulation.background))
    return [
        BackgroundSample(time_ns, flow.name, 0, flow.sent.source, flow.sent.destination, received)
        for flow in simulation.background
        for time_ns, received in zip(
            times_ns.tolist(), np.rint(flow.received.sent_by(times_ns)).astype(np.int64).tolist(), strict=True
        )
    ]


def _sample_times_ns(end_ns: int, lines: int) -> npt.NDArray[np.int64]:
    most = max(2, min(MAX_SAMPLES, MAX_SAMPLE_ROWS // lines))
    if end_ns > (most - 2) * SAMPLE_INTERVAL_NS:
        return np.linspace(0, end_ns, most).round().astype(np.int64)
    return np.array(sorted({*range(0, end_ns, SAMPLE_INTERVAL_NS), end_ns}), np.int64)
