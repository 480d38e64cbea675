"""Read the compute times of a run: how long each kind of action took at each GPU after the warm-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from wanbed.ground.errors import InputError, shown
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.results.records.trial_id import TrialId
from wanbed.results.text import list_text

if TYPE_CHECKING:
    import numpy as np

    from wanbed.results.reading.stored_trial import StoredTrial

FIELD = "compute.from"


@dataclass(frozen=True)
class MeasuredSource:
    """The source of measured times: a run's folder, engine and variant, and its trials.

    ``spans_sha256`` is the hash of the span tables of these trials.
    """

    run: str
    engine: str
    variant: str
    sweep_point: int
    repeats: tuple[int, ...]
    spans_sha256: str


@dataclass(frozen=True)
class MeasuredTimes:
    """The durations of the actions of a run, by (pipeline, stage) and kind of action, in ascending order."""

    source: MeasuredSource
    pipelines: int
    stages: int
    durations_ns: Mapping[tuple[int, int], Mapping[str, tuple[int, ...]]]

    def of(self, pipeline: int, stage: int, pipelines: int) -> Mapping[str, tuple[int, ...]]:
        """Return the durations of the GPU of a stage in one of ``pipelines`` pipelines.

        With another number of pipelines than the run's, they are those of all the run's replicas of the stage.
        """
        if pipelines == self.pipelines:
            return self.durations_ns[pipeline, stage]
        return self.of_stage(stage)

    def of_stage(self, stage: int) -> Mapping[str, tuple[int, ...]]:
        """Return the durations of all replicas of a stage together."""
        replicas = [self.durations_ns[pipeline, stage] for pipeline in range(self.pipelines)]
        kinds = dict.fromkeys(kind for own in replicas for kind in own)
        return {kind: tuple(sorted(each for own in replicas for each in own.get(kind, ()))) for kind in kinds}


def median_ns(durations_ns: Sequence[int]) -> int:
    """Return the median in whole nanoseconds, at least 1."""
    return max(round(median(durations_ns)), 1)


def measured_times(path: Path, variant: str, values: Mapping[str, str]) -> MeasuredTimes:
    """Return the compute times of a run for the variant of that name at the sweep point of those swept values.

    A run's only variant, and its only sweep point, stand for those of any name and values. Times of all repeats are
    taken together. Raise InputError, one line, if there is no run, or nothing in it that fits.
    """
    # Spared by every experiment that takes no times of a run.
    from wanbed.results.reading.run_documents import read_manifest, read_trials  # noqa: PLC0415
    from wanbed.results.records.run_store import RunError  # noqa: PLC0415

    try:
        manifest = read_manifest(path)
        trials = _chosen(path, read_trials(path, manifest), variant, values)
        times = _read(
            tuple((trial.folder, trial.id, int(trial.facts.get("warmup_iterations") or 0)) for trial in trials)
        )
    except (RunError, OSError) as fault:
        raise InputError(f"{FIELD}: {fault}") from None
    first = trials[0]
    source = MeasuredSource(
        str(path.resolve()),
        str(manifest.get("engine")),
        first.variant,
        first.point,
        tuple(trial.repeat for trial in trials),
        times[1],
    )
    ranks = times[0]
    if not ranks:
        raise InputError(f"{FIELD}: {path}: no stage of {first.variant!r} computed after warm-up: give another run")
    pipelines, stages = (1 + max(place[axis] for place in ranks) for axis in (0, 1))
    missing = [(p, s) for p in range(pipelines) for s in range(stages) if (p, s) not in ranks]
    if missing:
        raise InputError(f"{FIELD}: {path}: stage {missing[0][1]} of pipeline {missing[0][0]} has no compute times")
    return MeasuredTimes(source, pipelines, stages, ranks)


def _chosen(
    path: Path, trials: Sequence["StoredTrial"], variant: str, values: Mapping[str, str]
) -> list["StoredTrial"]:
    if not trials:
        raise InputError(f"{FIELD}: {path} has no finished trial: let it end, or give another run")
    of_point = [trial for trial in trials if trial.values == dict(values)]
    if not of_point and len({trial.point for trial in trials}) == 1:
        of_point = list(trials)
    if not of_point:
        at = ", ".join(f"{name}={value}" for name, value in values.items()) or "no swept values"
        raise InputError(
            f"{FIELD}: {path} has several sweep points and none of {at}: sweep the same values here, or give a run "
            "of one sweep point"
        )
    names = list(dict.fromkeys(trial.variant for trial in of_point))
    if variant not in names and len(names) > 1:
        raise InputError(
            f"{FIELD}: {path} has no variant {variant!r}, it has {list_text([shown(name) for name in names])}: name "
            "the variant like one of them"
        )
    return [trial for trial in of_point if len(names) == 1 or trial.variant == variant]


Ranks = dict[tuple[int, int], dict[str, tuple[int, ...]]]


@lru_cache(maxsize=8)
def _read(trials: tuple[tuple[Path, TrialId, int], ...]) -> tuple[Ranks, str]:
    """Return the compute durations in the spans of finished trials, each read after its warm-up, and their hash."""
    import numpy as np  # noqa: PLC0415

    from wanbed.results.records.trial_files import read_trial_table  # noqa: PLC0415
    from wanbed.results.records.trial_tables import SPANS_FILE  # noqa: PLC0415

    digest, found = sha256(), []
    for folder, identity, warmup in trials:
        digest.update((folder / SPANS_FILE).read_bytes())
        table = read_trial_table(folder, identity, SPANS_FILE)
        names, kind = np.unique(table.column("kind").to_numpy(), return_inverse=True)
        columns = [table.column(name).to_numpy() for name in ("pipeline", "stage", "iteration", "start_ns", "end_ns")]
        pipeline, stage, iteration, start_ns, end_ns = (np.asarray(column, np.int64) for column in columns)
        computes = np.isin(names, COMPUTE_KINDS)[kind] & (iteration >= warmup) & (pipeline >= 0) & (stage >= 0)
        codes = np.array([COMPUTE_KINDS.index(name) if name in COMPUTE_KINDS else -1 for name in names])
        rows = (pipeline, stage, codes[kind], end_ns - start_ns)
        found.append(np.stack([column[computes] for column in rows], axis=1))
    return _by_rank(np.concatenate(found)), digest.hexdigest()


def _by_rank(rows: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> Ranks:
    import numpy as np  # noqa: PLC0415

    rows = rows[np.lexsort(rows.T[::-1])]
    ranks: Ranks = {}
    starts = np.flatnonzero(np.any(np.diff(rows[:, :3], axis=0, prepend=-1) != 0, axis=1))
    for start, own in zip(starts, np.split(rows, starts[1:]), strict=True) if len(rows) else ():
        pipeline, stage, code, _ = rows[start].tolist()
        ranks.setdefault((pipeline, stage), {})[COMPUTE_KINDS[code]] = tuple(own[:, 3].tolist())
    return ranks
