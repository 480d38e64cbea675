"""Builds runs as the runner would leave them, from a pipeline computed on paper: GPipe over store-and-forward links."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.results.prefill_on_paper import with_prefill
from wanbed.results.records.documents import TIMES_DRAWN
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import CalibrationRow, LinkSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE, PREFILL_TABLE

MS = 1_000_000
DATACENTERS = ("east", "central", "west")
NODE_PAIR_RATE_BPS = 200_000_000
WINDOW_BYTES = 2**20
ACTIVATION_BYTES = 2 * 2**20
DURATION_MS = {"forward": 20, "recompute": 20, "backward": 40}
HEADERS = 1.05
ITERATIONS, WARMUP, MICROBATCHES = 3, 1, 8
SAMPLE_INTERVAL_NS = 100 * MS


@dataclass
class Pipeline:
    """One trial of GPipe: a stage a host, ``hosts`` hosts a datacenter; a lone connection moves a window per RTT."""

    latency_ns: int
    connections: int
    random: Random
    datacenters: Sequence[str] = DATACENTERS
    hosts: int = 2
    spans: dict[int, list[Span]] = field(default_factory=dict)
    crossings: list[tuple[int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stages = len(self.datacenters) * self.hosts
        self.spans = {stage: [] for stage in range(self.stages)}
        self.gpu_free = [0] * self.stages
        self.wire_free: dict[tuple[int, int], int] = {}

    def host(self, stage: int) -> str:
        return f"{self.datacenter(stage)}-{stage % self.hosts}"

    def datacenter(self, stage: int) -> str:
        return self.datacenters[stage // self.hosts]

    def transfer(self, iteration: int, microbatch: int, source: int, destination: int, ready_ns: int) -> int:
        crosses = self.datacenter(source) != self.datacenter(destination)
        latency_ns = self.latency_ns if crosses else 50_000
        window_rate_bps = self.connections * WINDOW_BYTES * 8e9 / (2 * latency_ns)
        rate_bps = min(NODE_PAIR_RATE_BPS, window_rate_bps) if crosses else 100e9
        start = max(ready_ns, self.wire_free.get((source, destination), 0))
        end = start + round(ACTIVATION_BYTES * 8e9 / rate_bps)
        self.wire_free[source, destination] = end
        for kind, stage, peer, delay in (
            ("send", source, destination, 0),
            ("receive", destination, source, latency_ns),
        ):
            tensor = "activation" if destination > source else "gradient"
            times_ns = start + delay, end + delay
            span = Span(kind, iteration, microbatch, *times_ns, ACTIVATION_BYTES, self.host(peer), tensor)
            self.spans[stage].append(span)
        if crosses:
            self.crossings.append((source, destination, start, end))
        return end + latency_ns

    def compute(self, kind: str, iteration: int, microbatch: int, stage: int, ready_ns: int) -> int:
        start = max(self.gpu_free[stage], ready_ns)
        end = start + round(DURATION_MS[kind] * MS * self.random.uniform(1.0, 1.02))
        self.spans[stage].append(Span(kind, iteration, microbatch, start, end))
        self.gpu_free[stage] = end
        return end

    def run(self) -> None:
        last = self.stages - 1
        for iteration in range(ITERATIONS):
            for microbatch in range(MICROBATCHES):
                ready = 0
                for stage in range(self.stages):
                    ready = self.compute("forward", iteration, microbatch, stage, ready)
                    if stage < last:
                        ready = self.transfer(iteration, microbatch, stage, stage + 1, ready)
            for microbatch in range(MICROBATCHES):
                ready = 0
                for stage in range(last, -1, -1):
                    if stage < last:
                        ready = self.compute("recompute", iteration, microbatch, stage, ready)
                    ready = self.compute("backward", iteration, microbatch, stage, ready)
                    if stage > 0:
                        ready = self.transfer(iteration, microbatch, stage, stage - 1, ready)

    def logs(self) -> list[SpanLogContents]:
        headers = (
            RankPlace(stage, self.host(stage), self.datacenter(stage), 0, 0, stage) for stage in range(self.stages)
        )
        return [SpanLogContents(header, tuple(self.spans[header.rank]), complete=True) for header in headers]

    def samples(self) -> list[LinkSample]:
        end_ns = max(span.end_ns for spans in self.spans.values() for span in spans)
        times = [*range(0, end_ns, SAMPLE_INTERVAL_NS), end_ns]
        flows: dict[tuple[str, str, str], list[tuple[int, int]]] = {
            ("link", *pair): [] for pair in permutations(self.datacenters, 2)
        }
        for source, destination, start, end in self.crossings:
            for scope, name in (("link", self.datacenter), ("node_pair", self.host)):
                flows.setdefault((scope, name(source), name(destination)), []).append((start, end))
        samples = []
        for time_ns in times:
            for (scope, source_name, destination_name), transfers in flows.items():
                sent = sum(min(max((time_ns - start) / (end - start), 0), 1) for start, end in transfers)
                wire_bytes = round(sent * ACTIVATION_BYTES * HEADERS)
                row = (time_ns, scope, source_name, destination_name, wire_bytes, wire_bytes // 1500, 0, 0)
                samples.append(LinkSample(*row))
        return samples


def calibration_rows(latency_ms: float, datacenters: Sequence[str], within_tolerance: bool) -> list[CalibrationRow]:
    error = 1.004 if within_tolerance else 1.3
    goodput_bps = NODE_PAIR_RATE_BPS * 0.957
    impairments = {
        "configured_jitter_ms": 0.0,
        "measured_jitter_ms": 0.02,
        "configured_loss": 0.0,
        "measured_loss": 0.0,
    }
    return [
        CalibrationRow(
            *pair, "wan", 2 * latency_ms, 2 * latency_ms + 0.1, goodput_bps, goodput_bps / error,
            impairments, within_tolerance,
        )
        for pair in permutations(datacenters, 2)
    ]  # fmt: skip


def manifest_for(
    name: str,
    variants: Sequence[str],
    latencies: Sequence[str],
    repeats: int,
    datacenters: Sequence[str] = DATACENTERS,
) -> dict[str, Any]:
    wan = [
        {"between": list(pair), "rate_bps": 5 * NODE_PAIR_RATE_BPS, "node_pair_rate_bps": NODE_PAIR_RATE_BPS}
        for pair in combinations(datacenters, 2)
    ]
    swept = [{"topology.wan.latency": value} for value in latencies] if len(latencies) > 1 else [{}]
    points = [{"index": i, "sweep_point": values, "wan": wan} for i, values in enumerate(swept)]
    return {
        "name": name,
        "experiment": {
            "name": name,
            "topology": {
                "datacenters": [{"name": each, "hosts": 2} for each in datacenters],
                "wan": {"latency": "40ms", "node_pair_rate": "200Mbit"},
            },
            "repeats": repeats,
        },
        "seed": 0,
        "engine": "emulate",
        "clock": "real",
        "dilation": 1.0,
        "substrate": {"name": "kernel", "reason": "the host kernel has sch_netem", "kernel": "6.1.0-18-amd64"},
        "host": {
            "kernel": "6.1.0-18-amd64",
            "cpu": "AMD EPYC 7B13",
            "cores": 2,
            "memory_bytes": 8 * 2**30,
            "os": "Debian GNU/Linux 12",
        },
        "versions": {"python": "3.11.2", "wanbed": "0.1.0", "pyroute2": "0.9.7"},
        "git": {"revision": "0123456789abcdef", "dirty": False},
        "sysctls": {"0": {"net.ipv4.tcp_congestion_control": "cubic", "net.ipv4.tcp_rmem": "4096 131072 6291456"}},
        "qdiscs": {},
        "variants": [
            {"name": variant, "schedule": "gpipe", "transport": {"connections": position * 8 or 1}}
            for position, variant in enumerate(variants)
        ],
        "sweep_points": points,
        "training": {
            "stages": 6,
            "pipelines": 1,
            "microbatches": MICROBATCHES,
            "iterations": ITERATIONS,
            "warmup": WARMUP,
        },
        "warmup_iterations": WARMUP,
        "tokens_per_iteration": MICROBATCHES * 4096,
    }


BuildRun = Callable[..., Path]


def _builder(folder: Path) -> BuildRun:
    def build(
        *,
        name: str = "demo",
        variants: Sequence[str] = ("one connection", "many connections"),
        latencies: Sequence[str] = ("10ms", "40ms"),
        repeats: int = 1,
        within_tolerance: bool = True,
        finished_trials: int | None = None,
        manifest: Mapping[str, Any] | None = None,
        datacenters: Sequence[str] = DATACENTERS,
        prefill: Mapping[str, float] | None = None,
        drawn: bool = False,
    ) -> Path:
        described = {**manifest_for(name, variants, latencies, repeats, datacenters), **(manifest or {})}
        for position, variant in enumerate(variants):
            if prefill and variant in prefill:
                described["variants"][position] |= {**described["variants"][position - 1], "name": variant}
        store = RunStore.create(folder / "runs", name, described, "c0ffee" * 8)
        trials = [
            (point, variant, k) for point in range(len(latencies)) for variant in variants for k in range(repeats)
        ]
        for point, variant, repeat in trials[:finished_trials]:
            latency_ms = int(latencies[point].removesuffix("ms"))
            if not store.has_calibration(point):
                store.write_calibration(point, calibration_rows(latency_ms, datacenters, within_tolerance))
            # A variant that prefills trains as the one before it does.
            trains_as = [each for each in variants if each not in (prefill or {})]
            connections = 8 * (trains_as.index(variant) if variant in trains_as else len(trains_as) - 1) or 1
            pipeline = Pipeline(latency_ms * MS, connections, Random(repeat), datacenters)
            pipeline.run()
            logs, requests, facts = pipeline.logs(), [], {TIMES_DRAWN: True} if drawn else {}
            if prefill and variant in prefill:
                logs, requests, facts["prefill"] = with_prefill(logs, prefill[variant], list(DURATION_MS), repeat)
            record = TrialRecord(
                TrialId(point, variant, repeat), logs, {LINK_TABLE: pipeline.samples(), PREFILL_TABLE: requests}, facts
            )
            store.write_trial(record)
        if finished_trials is None:
            store.finish()
        return store.path

    return build


@pytest.fixture
def build_run(tmp_path: Path) -> BuildRun:
    """``build_run(variants=, latencies=, repeats=, ...)`` writes a run below the test's folder and returns its path.

    ``prefill`` names the variants that prefill in their bubbles, and how many requests a second they are asked for.
    With ``drawn``, the compute times of all trials were drawn.
    """
    return _builder(tmp_path)


@pytest.fixture(scope="session")
def build_run_in() -> Callable[[Path], BuildRun]:
    """``build_run_in(folder)`` is ``build_run`` below that folder, for a run that several tests read."""
    return _builder
