"""Trials of a user's program as the runner would leave them, computed on paper: data parallel, gradients in buckets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import CalibrationRow, LinkSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE

MS = 1_000_000
HOSTS = (("east-0", "east"), ("west-0", "west"), ("south-0", "south"))
BUCKET_BYTES = 16 * 2**20
SAMPLE_EVERY_NS = 50 * MS


@dataclass
class ProgramOnPaper:
    """Each iteration: forward, backward, an all-reduce for each bucket as its gradients are ready, optimizer, Python.

    All-reduces follow each other, begin when the last rank has the gradients, and overlap backward. ``slowness`` says
    how many times longer a rank computes.
    """

    hosts: tuple[tuple[str, str], ...] = HOSTS
    slowness: Mapping[int, float] = field(default_factory=lambda: {2: 1.5})
    iterations: int = 6
    profiled: int = 1
    buckets: int = 3
    forward_ns: int = 20 * MS
    backward_ns: int = 45 * MS
    reduce_ns: int = 60 * MS
    optimizer_ns: int = 6 * MS
    python_ns: int = 4 * MS

    @property
    def group(self) -> str:
        return ",".join(str(rank) for rank in range(len(self.hosts)))

    def logs(self) -> list[SpanLogContents]:
        spans: list[list[Span]] = [[] for _ in self.hosts]
        now = [0] * len(self.hosts)
        for iteration in range(self.iterations):
            recorded = iteration >= self.iterations - self.profiled
            begun = list(now)
            ready: list[list[int]] = []
            computed: list[int] = []
            for rank in range(len(self.hosts)):
                slow = self.slowness.get(rank, 1.0)
                middle = begun[rank] + round(self.forward_ns * slow)
                end = middle + round(self.backward_ns * slow)
                computed.append(end)
                ready.append([middle + (end - middle) * (n + 1) // self.buckets for n in range(self.buckets)])
                if recorded:
                    spans[rank] += [
                        Span("forward", iteration, -1, begun[rank], middle),
                        Span("backward", iteration, -1, middle, end),
                    ]
            done = 0
            for bucket in range(self.buckets):
                done = max(done, *(each[bucket] for each in ready)) + self.reduce_ns
                for rank in range(len(self.hosts)) if recorded else ():
                    start = ready[rank][bucket]
                    spans[rank].append(Span("all_reduce", iteration, -1, start, done, BUCKET_BYTES, tensor=self.group))
            for rank in range(len(self.hosts)):
                reduced = max(done, computed[rank])
                updated = reduced + self.optimizer_ns
                spans[rank].append(Span("optimizer", iteration, -1, reduced, updated))
                now[rank] = updated + self.python_ns + rank * MS
                spans[rank].append(Span("iteration", iteration, -1, begun[rank], now[rank]))
        return [
            SpanLogContents(RankPlace(rank, *self.hosts[rank], 0, rank, 0), tuple(own), complete=True)
            for rank, own in enumerate(spans)
        ]

    def samples(self, end_ns: int) -> list[LinkSample]:
        """Counters of every link, which carry 20 MB/s all the time."""
        datacenters = list(dict.fromkeys(datacenter for _, datacenter in self.hosts))
        times = [*range(0, end_ns, SAMPLE_EVERY_NS), end_ns]
        return [
            LinkSample(time_ns, "link", one, other, time_ns // 50, time_ns // 75_000, 0, 0)
            for time_ns in times
            for one in datacenters
            for other in datacenters
            if one != other
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "warmup_iterations": 1,
            "profiled_iterations": self.profiled,
            "program": {
                "command": ["python", "train.py", "--lr", "0.1"],
                "launcher": "torchrun",
                "world_size": len(self.hosts),
                "marked_by": "optimizer",
                "ranks": [{"rank": rank, "host": host, "process": 0} for rank, (host, _) in enumerate(self.hosts)],
                "outputs": [f"rank-{rank}.stdout" for rank in range(len(self.hosts))],
            },
        }


def described(name: str, command: list[str]) -> dict[str, Any]:
    """A variant as an experiment file has it."""
    return {"name": name, "program": {"command": command, "launcher": "torchrun"}}


def add_program(
    path: Path, name: str, paper: ProgramOnPaper, *, point: int = 0, repeats: int = 1, **facts: Any
) -> None:
    """Add a variant that runs a program, and its finished trials, to a run's folder."""
    store = RunStore.open(path)
    variant = described(name, paper.facts()["program"]["command"])
    listed = [*(each for each in store.manifest["variants"] if each["name"] != name), variant]
    experiment = {**store.manifest.get("experiment", {}), "variants": listed}
    store.update_manifest({"variants": listed, "experiment": experiment})
    logs = paper.logs()
    end_ns = max(span.end_ns for log in logs for span in log.spans)
    for repeat in range(repeats):
        printed = path / "printed"
        printed.write_text("step 1 loss 6.1\n")
        outputs = dict.fromkeys(paper.facts()["program"]["outputs"], printed)
        tables = {LINK_TABLE: paper.samples(end_ns)}
        store.write_trial(TrialRecord(TrialId(point, name, repeat), logs, tables, {**paper.facts(), **facts}, outputs))
        printed.unlink()


def program_run(root: Path, variants: Mapping[str, ProgramOnPaper], **manifest: Any) -> Path:
    """A finished run of programs only; returns its folder."""
    hosts = next(iter(variants.values())).hosts
    datacenters = list(dict.fromkeys(datacenter for _, datacenter in hosts))
    described_run = {
        "experiment": {"topology": {"datacenters": [{"name": each, "hosts": 1} for each in datacenters]}},
        "engine": "emulate",
        "clock": "real",
        "dilation": 1.0,
        "variants": [],
        "sweep_points": [{"index": 0, "sweep_point": {}}],
        "warmup_iterations": 1,
        **manifest,
    }
    store = RunStore.create(root, "program", described_run, "c0ffee" * 8)
    rows = [
        CalibrationRow(one, other, "wan", 80.0, 80.1, 1e8, 1e8, {}, True)
        for one in datacenters
        for other in datacenters
        if one != other
    ]
    store.write_calibration(0, rows)
    for name, paper in variants.items():
        add_program(store.path, name, paper)
    RunStore.open(store.path).finish()
    return store.path
