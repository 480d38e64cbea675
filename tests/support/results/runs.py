"""Runs whose iteration times are given, one pipeline of one stage, so that comparisons can be worked out by hand.

One iteration of warm-up goes before those that are given, so that each has a period.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbed.results.reading.run import Run, load_run
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId

Times = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""Iteration times in seconds of each repeat, by latency and variant."""

WAN = {"rate_bps": 10**9, "node_pair_rate_bps": 10**8, "jitter_ns": 0, "loss": 0.0}
EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    },
    "model": "gpt-a",
    "compute": {"kind": "replay", "profile": "a100"},
    "training": {"microbatches": 4, "iterations": 3, "warmup": 1, "text": None},
}


def flat(seconds: float, repeats: int = 3, iterations: int = 2) -> list[list[float]]:
    """The same time, every time."""
    return [[seconds] * iterations] * repeats


def write_run(
    path: Path,
    times: Times,
    *,
    finished: bool = True,
    within_tolerance: bool = True,
    experiment: Mapping[str, Any] | None = None,
    work_ns: int = 1000,
    latency_ns: Callable[[str], int] = lambda text: int(text.removesuffix("ms")) * 10**6,
    bound: Mapping[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """A run's folder; ``experiment`` and ``manifest`` replace what they name, ``bound`` is of every trial's period."""
    latencies = list(dict.fromkeys(latency for latency, _ in times))
    variants = list(dict.fromkeys(variant for _, variant in times))
    links = [{"between": ["east", "west"], "latency_ns": latency_ns(latency), **WAN} for latency in latencies]
    works = {variant: {"work": {"forward_ns": [work_ns, work_ns]}} for variant in variants}
    written = {
        "experiment": {
            **EXPERIMENT,
            "variants": [{"name": name, "schedule": f"by {name}", "transport": {}} for name in variants],
            **(experiment or {}),
        },
        "engine": "emulate",
        "clock": "real",
        "dilation": 1.0,
        "seed": 0,
        "substrate": {"name": "kernel", "kernel": "6.1"},
        "host": {"cpu": "one", "cores": 2},
        "git": {"revision": "abc", "dirty": False},
        "variants": [{"name": name} for name in variants],
        "sweep_points": [
            {"index": index, "sweep_point": {"topology.wan.latency": latency}, "wan": [link], "variants": works}
            for index, (latency, link) in enumerate(zip(latencies, links, strict=True))
        ],
        "warmup_iterations": 1,
        **manifest,
    }
    store = RunStore.create(path, "made", written, "c0ffee" * 8)
    for point in range(len(latencies)):
        row = CalibrationRow("east", "west", "wan", 80.0, 80.1, 1e8, 1e8, {}, within_tolerance)
        store.write_calibration(point, [row])
    facts = {"period_bound": bound} if bound is not None else {}
    for (latency, variant), repeats in times.items():
        for repeat, times_s in enumerate(repeats):
            spans, start_ns = [], 0
            for iteration, time_s in enumerate((1.0, *times_s) if times_s else ()):
                end_ns = start_ns + round(time_s * 1e9)
                spans.append(Span("forward", iteration, 0, start_ns, end_ns))
                start_ns = end_ns
            log = SpanLogContents(RankPlace(0, "east-0", "east", 0, 0, 0), tuple(spans), complete=True)
            store.write_trial(TrialRecord(TrialId(latencies.index(latency), variant, repeat), [log], facts=facts))
    if finished:
        store.update_manifest({"complete": True})
    return store.path


def made(path: Path, times: Times, **options: Any) -> Run:
    """``write_run``, read back."""
    return load_run(write_run(path, times, **options))
