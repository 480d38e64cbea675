"""Gather the record of a trial: what its training and each companion have left, and the facts about both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from wanbed.results.records.run_store import TrialPart, TrialRecord
from wanbed.results.records.span_log import SpanLogContents
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.runs.trial_facts import TrialCourse, trial_facts
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.mps import find_mps


def trial_record(
    trial: RunningTrial, trained: Trained, parts: Sequence[TrialPart], outputs: Mapping[str, Path]
) -> TrialRecord:
    """Return the record of a trial, of what its training and each companion have left."""
    point, variant = trial.point, trial.variant
    logs = [*trained.logs, *chain.from_iterable(part.logs for part in parts)]
    course = TrialCourse(
        iterations=point.iterations(variant),
        warmup=point.spec.training.warmup,
        tokens_per_iteration=point.tokens_of(variant),
        dilation=trial.setting.dilation,
        connections=trial.setting.connections,
        sums=[(len(each.ranks), each.late) for log in logs for each in log.sums],
        dropped=sum(log.dropped for log in logs),
        while_all_ran_ns=trained.while_all_ran_ns,
        varies=variant.varies,
        computes=point.spec.compute.backend.real_time,
    )
    facts = {
        **trial_facts(point.topology, variant, course),
        **({"devices": devices} if (devices := device_facts(logs)) else {}),
        **({"swapping": swapping} if (swapping := swapping_facts(logs)) else {}),
        "sysctls": variant.tcp.sysctls(),
        **_assignment_facts(trial.testbed.gpus),
        **trained.facts,
    }
    tables = {table: rows for part in parts for table, rows in part.tables.items()}
    return TrialRecord(trial.spec.id, logs, tables, {**facts, **_all_facts(parts)}, outputs)


def _all_facts(parts: Iterable[TrialPart]) -> dict[str, Any]:
    return {name: fact for part in parts for name, fact in part.facts.items()}


def device_facts(logs: Iterable[SpanLogContents]) -> list[dict[str, Any]]:
    """Return the device facts of each rank that computed for real, and its place in the emulated network."""
    return [
        {"rank": log.header.rank, "host": log.header.host, "gpu": log.header.gpu, **asdict(log.device)}
        for log in logs
        if log.device is not None
    ]


def swapping_facts(logs: Iterable[SpanLogContents]) -> list[dict[str, Any]]:
    """Return what swapping took each rank that really swapped, and its place in the emulated network."""
    return [
        {"rank": log.header.rank, "host": log.header.host, "gpu": log.header.gpu, **asdict(log.swapping)}
        for log in logs
        if log.swapping is not None
    ]


def _assignment_facts(gpus: GpuAssignment | None) -> dict[str, Any]:
    """Return which real GPU each host's GPU is, and MPS if it runs: with it those that share one run side by side."""
    if gpus is None:
        return {}
    mps = find_mps()
    return {"gpu_assignment": gpus.document(), **({} if mps is None else {"mps": asdict(mps)})}
