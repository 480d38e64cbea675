"""Run one trial: a variant and what happens beside it, on a testbed that is up, from their start to their record."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from wanbed.results.records.run_store import TrialPart, TrialRecord
from wanbed.results.records.span_log import SpanLogContents
from wanbed.runner.emulation.companion import Companion, companions_of
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained, TrialSpec, begun_trial
from wanbed.runner.emulation.time_line import on_time_line
from wanbed.runner.emulation.training import train
from wanbed.runner.runs.trial_facts import TrialCourse, trial_facts
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.gpus import find_mps
from wanbed.testbed.running_testbed import RunningTestbed


def run_trial(testbed: RunningTestbed, spec: TrialSpec, meanwhile: Callable[[], None] = lambda: None) -> TrialRecord:
    """Enter the companions, train, leave the companions, and gather what all have left.

    ``meanwhile`` is called several times a second. The hosts' TCP is set as the variant says beforehand: connections
    are counted under the same settings.

    Raises TrialError, one line with the first rank that failed and its own words, SubstrateError, MachineLostError,
    and MissingError for a kernel that does not report the state of connections.
    """
    with _folder_of_trial(testbed) as folder:
        trial = begun_trial(testbed, spec, folder)
        companions = companions_of(trial)
        for companion in companions:
            trial = replace(trial, setting=companion.joined(trial.setting))
        with ExitStack() as during:
            for companion in companions:
                during.enter_context(companion.during())
            ended = train(trial, lambda: _begin(companions), lambda: _look(companions, meanwhile))
        trained = on_time_line(trial, ended)
        parts = [companion.left(trained) for companion in companions]
        outputs = _set_aside(ended.outputs, testbed.folder / "output")
        if spec.gradients is not None:
            _keep_gradients(ended.setting, len(trial.variant.placement.places), spec.gradients)
    return _trial_record(trial, trained, parts, outputs)


@contextmanager
def _folder_of_trial(testbed: RunningTestbed) -> Iterator[Path]:
    """Yield a folder for the files of a trial, which is gone after the block."""
    folder = testbed.folder / "trial"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _begin(companions: Iterable[Companion]) -> None:
    for companion in companions:
        companion.begin()


def _look(companions: Iterable[Companion], meanwhile: Callable[[], None]) -> None:
    meanwhile()
    for companion in companions:
        companion.look()


def _keep_gradients(setting: SharedConfig, ranks: int, folder: Path) -> None:
    """Copy the gradients of the last iteration, of those ranks that came to it."""
    for rank in range(ranks):
        if (path := setting.gradients(rank)) is not None and path.exists():
            shutil.copy(path, folder / f"rank-{rank}.npz")


def _set_aside(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Move files to ``folder``, which then has nothing else, and return their paths there by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return {name: path.rename(folder / name) for name, path in files.items()}


def _trial_record(
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
    of_companions = {name: fact for part in parts for name, fact in part.facts.items()}
    return TrialRecord(trial.spec.id, logs, tables, {**facts, **of_companions}, outputs)


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
