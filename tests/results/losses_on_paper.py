"""Builds runs whose trials learnt, from losses and iteration times on paper."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import HELD_OUT, TRAINING, CalibrationRow, LinkSample, ReplicaLossRow
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE, LOSSES_TABLE

MS = 1_000_000
START_NS = 50 * MS
TOKENS_PER_ITERATION = 512
BYTES_PER_ITERATION = 1_000_000
MODEL = {"layers": 2, "hidden": 64, "context": 64, "heads": 4, "vocabulary": 256}

Losses = Callable[[int, int, int], float]
"""The loss of a repeat, an iteration and a replica."""


def linear(first: float, per_iteration: float) -> Losses:
    """Losses that fall evenly, a hundredth higher with each repeat; of replicas a hundredth below and above that."""
    return lambda repeat, iteration, pipeline: (
        first - per_iteration * iteration + 0.01 * repeat + (0.01 if pipeline else -0.01)
    )


def losing_run(
    folder: Path,
    *,
    name: str = "learnt",
    losses: Mapping[str, Losses | None],
    iteration_ms: Mapping[str, int] | int = 100,
    iterations: int = 10,
    repeats: int = 1,
    seeds: Sequence[int] | None = None,
    evaluate_every: int | None = None,
    points: Sequence[Mapping[str, str]] = ({},),
    simulated: bool = False,
    manifest: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run of two replicas, one in each of two datacenters, and return its folder.

    ``losses`` has those of each variant, None for one that learns nothing. Iteration k of a variant takes
    ``iteration_ms``, and ``BYTES_PER_ITERATION`` cross the WAN in it. Repeat r has the seed ``seeds[r]``, by default r.
    """
    variants = [{"name": each, "schedule": "dp", "options": {}} for each in losses]
    trained = {"iterations": iterations, "precision": "fp32", "pipelines": 2, **(training or {})}
    resolved = {"placement": [[["east-1", 0]], [["west-1", 0]]], "microbatches": 4}
    described = {
        "name": name,
        "experiment": {"name": name, "model": MODEL, "training": trained, "variants": variants, "repeats": repeats},
        "engine": "simulate" if simulated else "emulate",
        "clock": "real",
        "dilation": 1.0,
        "variants": variants,
        "sweep_points": [
            {"index": index, "sweep_point": dict(values), "wan": [], "variants": dict.fromkeys(losses, resolved)}
            for index, values in enumerate(points)
        ],
        "warmup_iterations": 1,
        "tokens_per_iteration": TOKENS_PER_ITERATION,
        **(manifest or {}),
    }
    store = RunStore.create(folder, name, described, "c0ffee" * 8)
    for point in range(len(points)):
        if not simulated:
            store.write_calibration(
                point, [CalibrationRow("east", "west", "wan", 40.0, 40.1, None, None, {}, within_tolerance=True)]
            )
        for variant, losing in losses.items():
            own_ms = iteration_ms if isinstance(iteration_ms, int) else iteration_ms[variant]
            for repeat in range(repeats):
                facts = {} if losing is None else {"learning_seed": repeat if seeds is None else seeds[repeat]}
                store.write_trial(
                    TrialRecord(
                        TrialId(point, variant, repeat),
                        _logs(iterations, own_ms * (point + 1)),
                        {
                            LINK_TABLE: _samples(iterations, own_ms * (point + 1)),
                            LOSSES_TABLE: _rows(losing, repeat, iterations, evaluate_every),
                        },
                        facts,
                    )
                )
    store.finish()
    return store.path


def _logs(iterations: int, iteration_ms: int) -> list[SpanLogContents]:
    spans = tuple(
        Span(
            kind,
            k,
            microbatch,
            *((START_NS + (k * iteration_ms + at * iteration_ms // 2) * MS) for at in (half, half + 1)),
        )
        for k in range(iterations)
        for half, (kind, microbatch) in enumerate((("forward", 0), ("optimizer", -1)))
    )
    return [
        SpanLogContents(RankPlace(rank, f"{home}-1", home, 0, rank, 0), spans, True)
        for rank, home in enumerate(("east", "west"))
    ]


def _samples(iterations: int, iteration_ms: int) -> list[LinkSample]:
    """Readings at the begin and end of each iteration; half of the bytes in each direction."""
    return [
        LinkSample(START_NS + k * iteration_ms * MS, "link", *ends, k * BYTES_PER_ITERATION // 2, 0, 0, 0)
        for k in range(iterations + 1)
        for ends in (("east", "west"), ("west", "east"))
    ]


def _rows(losing: Losses | None, repeat: int, iterations: int, every: int | None) -> list[ReplicaLossRow]:
    if losing is None:
        return []
    rows = [ReplicaLossRow(k, TRAINING, p, losing(repeat, k, p)) for k in range(iterations) for p in range(2)]
    evaluated = range(every - 1, iterations, every) if every else ()
    # What is held out is a little harder.
    return rows + [ReplicaLossRow(k, HELD_OUT, p, losing(repeat, k, p) + 0.1) for k in evaluated for p in range(2)]
