"""Write a run's folder trial by trial, so that a run killed at any moment keeps what had finished.

::

    <name>-<time>-<hash>/
        manifest.json                     "complete": false until the run has ended
        calibration/point-<NNN>.parquet
        summary.parquet                   once the run has ended
        trials/point-<NNN>/<variant>/repeat-<K>/{spans, link_samples, tcp_samples, prefill_requests}.parquet, trial.json
                                               gpu_samples.parquet   where NVML was sampled
                                               output/   what a user's program printed, and wrote on a rack

Every file appears whole under its name or not at all, and a trial's folder as one: it is written as
``<folder>.partial`` and renamed. This guards against the process being killed, not against the machine losing power.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

from wanbed.ground.errors import WanbedError
from wanbed.ground.files import PARTIAL, regular_file, write_whole, written_whole
from wanbed.results.records.documents import Manifest, TrialFacts
from wanbed.results.records.schema import CALIBRATION, SPANS, SPANS_OF_VIRTUAL_STAGES, CalibrationRow
from wanbed.results.records.schema_upgrade import EARLIER_POINT_NAME, upgraded_document
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.records.table_files import write_table, write_tables
from wanbed.results.records.trial_columns import TrialCounters, TrialSpans
from wanbed.results.records.trial_id import TrialId, planned_trials
from wanbed.results.records.trial_table import TrialTable
from wanbed.results.records.trial_tables import SPANS_FILE, SPANS_TABLE, TRIAL_TABLES
from wanbed.results.records.written_spans import WrittenSpans

MANIFEST = "manifest.json"
TRIAL_FACTS = "trial.json"
OUTPUT_FOLDER = "output"
"""The folder of the output of a user's program in a trial: a file for each process and stream."""
SUMMARY_FILE = "summary.parquet"

_MAX_SLUG_LENGTH = 60


class RunError(WanbedError, ValueError):
    """A folder is not a run, or a part of it cannot be read; the message is one line that starts with the path."""


class LostTrialError(WanbedError):
    """A trial that had finished is gone while its run goes on; the message is one line that starts with its path."""


Rows = Sequence[tuple[Any, ...]] | TrialCounters
"""Rows of a table, without the columns that say which trial it is; counters of links may come as whole columns."""


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial: its spans, and the rows of its other tables; both are given row by row or as whole columns.

    ``facts`` are further things to keep in trial.json; ``warmup_iterations``, ``tokens_per_iteration`` and ``dilation``
    there hold for this trial in place of the manifest's. ``outputs`` are files of what programs printed, and on a
    rack wrote, which are kept in the trial's folder ``output`` under these names, which may be paths.
    """

    id: TrialId
    spans: Sequence[SpanLogContents] | TrialSpans
    tables: Mapping[TrialTable, Rows] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialPart:
    """The part of a trial's record that a companion leaves; ``logs`` are those of GPUs that do not train."""

    tables: Mapping[TrialTable, Rows] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    logs: Sequence[SpanLogContents] = ()


def slug(name: str) -> str:
    """Return a folder name for any text; two texts never share one.

    Letters, digits, dots, dashes and underscores stay; where anything has to change, a hash of the text is added.
    """
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:_MAX_SLUG_LENGTH] or "unnamed"
    looks_hashed = re.search(r"-[0-9a-f]{8}$", name)
    return name if kept == name and not looks_hashed else f"{kept}-{sha256(name.encode()).hexdigest()[:8]}"


def point_path(folder: Path, point: int, suffix: str = "") -> Path:
    """Return where a sweep point lies below ``trials`` or ``calibration``; by its name of version 2 if that exists."""
    earlier = folder / f"{EARLIER_POINT_NAME}{point:03d}{suffix}"
    return earlier if earlier.exists() else folder / f"point-{point:03d}{suffix}"


def _write_document(path: Path, document: Mapping[str, Any], kind: type[Manifest | TrialFacts]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # What no reader would take is not written.
    kind.model_validate_json(text)
    write_whole(path, text)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def read_json(path: Path) -> dict[str, Any]:
    """Read one of a run's JSON documents. Raises RunError if it is absent or damaged."""
    try:
        document = json.loads(
            regular_file(path).read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite
        )
        # Half a surrogate pair, as an escape, is JSON, and no text that can be written again.
        json.dumps(document, ensure_ascii=False).encode()
    except OSError as fault:
        raise RunError(f"{path.parent}: not a run's folder: {path.name}: {fault.strerror}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{path}: not JSON, the file is damaged") from None
    if not isinstance(document, dict):
        raise RunError(f"{path}: not a JSON object, the file is damaged")
    return document


class RunStore:
    """Write one run's folder. Make a store with ``create`` or, to continue a run, ``open``."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self._manifest = manifest

    @classmethod
    def create(cls, root: Path, name: str, manifest: Mapping[str, Any], config_hash: str) -> "RunStore":
        """Make a new folder below ``root`` and write the manifest there, marked incomplete.

        Its ``run_id`` is unique, and stays when the folder is copied.
        """
        now = datetime.now(UTC)
        stem = f"{slug(name)}-{now:%Y%m%dT%H%M%SZ}-{config_hash[:8]}"
        root.mkdir(parents=True, exist_ok=True)
        for attempt in count(1):
            path = root / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                path.mkdir()
                break
            except FileExistsError:
                continue
        created = {"name": name, "run_id": uuid4().hex, "created": now.isoformat(timespec="seconds")}
        store = cls(path, {**created, **manifest, "config_hash": config_hash, "complete": False})
        try:
            _write_document(path / MANIFEST, store.manifest, Manifest)
        except OSError:
            path.rmdir()
            raise
        return store

    @classmethod
    def open(cls, path: Path) -> "RunStore":
        """Continue a run. Raises RunError if there is none at ``path``."""
        return cls(path, read_json(path / MANIFEST))

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of the manifest as it stands on disk."""
        return dict(self._manifest)

    def update_manifest(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the manifest, or replace them."""
        self._manifest |= facts
        _write_document(self.path / MANIFEST, upgraded_document(self._manifest), Manifest)

    def finish(self, facts: Mapping[str, Any] | None = None) -> None:
        """Mark the run complete, and stamp when it ended. Raises LostTrialError if a trial is not there."""
        if missing := self.missing_trials():
            raise LostTrialError(f"{self.trial_path(*missing[0])}: removed while the run went on")
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        self.update_manifest({**(facts or {}), "ended": ended, "complete": True})

    def _calibration_path(self, point: int) -> Path:
        return point_path(self.path / "calibration", point, ".parquet")

    def has_calibration(self, point: int) -> bool:
        """Return whether this sweep point's links have been measured."""
        return self._calibration_path(point).is_file()

    def write_calibration(self, point: int, rows: Iterable[CalibrationRow]) -> None:
        """Keep what calibration measured in one sweep point, in place of what was there."""
        path = self._calibration_path(point)
        path.parent.mkdir(exist_ok=True)
        with written_whole(path) as partial:
            write_table(partial, CALIBRATION, [(point, *row.in_columns()) for row in rows])

    def trial_path(self, point: int, variant: str, repeat: int) -> Path:
        """Return the path of a trial's folder, which exists once the trial has finished."""
        return trial_path(self.path, point, variant, repeat)

    def has_trial(self, point: int, variant: str, repeat: int) -> bool:
        """Return whether this trial has finished."""
        path = self.trial_path(point, variant, repeat)
        return all((path / name).is_file() for name in (TRIAL_FACTS, SPANS_FILE))

    def missing_trials(self) -> list[TrialId]:
        """Return the trials that the manifest plans and the folder does not have."""
        return [trial for trial in planned_trials(self._manifest) if not self.has_trial(*trial)]

    def write_trial(self, trial: TrialRecord) -> Path:
        """Write a finished trial into this run, as the function ``write_trial`` does."""
        return write_trial(self.path, trial)


def trial_path(run: Path, point: int, variant: str, repeat: int) -> Path:
    """Return the path of a trial's folder in the run's folder ``run``, which exists once the trial has finished."""
    return point_path(run / "trials", point) / slug(variant) / f"repeat-{repeat}"


def write_trial(run: Path, trial: TrialRecord, written: WrittenSpans | None = None) -> Path:
    """Keep a finished trial in the run's folder ``run``, all of it or nothing, and return its own folder.

    ``written`` gets its spans, if they are columns.

    Several processes may do so at the same time, each with other trials. Raises ValueError if a rank's log is cut off,
    since the trial has not finished then, and FileExistsError if this trial is there already.
    """
    for log in () if isinstance(trial.spans, TrialSpans) else trial.spans:
        if not log.complete:
            raise ValueError(f"the log of rank {log.header.rank} on {log.header.host} is cut off")
    path, partial = _begun_trial(run, trial.id)
    if isinstance(trial.spans, TrialSpans):
        spans = trial.spans.tables(trial.id)
        if written is not None:
            whole = trial.spans.table(trial.id)
            written.keep(path, whole)
            spans = iter([whole])
        write_tables(partial / SPANS_FILE, trial.spans.schema, spans, coded=True)
    else:
        divided = any(span.virtual_stage is not None for log in trial.spans for span in log.spans)
        schema = SPANS_OF_VIRTUAL_STAGES if divided else SPANS
        write_table(partial / SPANS_FILE, schema, [row[: len(schema)] for row in _span_rows(trial.id, trial.spans)])
    empty: dict[TrialTable, Rows] = {table: () for table in TRIAL_TABLES.values() if table is not SPANS_TABLE}
    for table, rows in {**empty, **trial.tables}.items():
        if isinstance(rows, TrialCounters):
            write_tables(partial / table.file, table.columns, rows.tables(trial.id), coded=True)
        elif rows or table.always:
            write_table(partial / table.file, table.columns, [(*trial.id, *row) for row in rows])
    for name, left in trial.outputs.items():
        (partial / OUTPUT_FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(left, partial / OUTPUT_FOLDER / name)
    own = {"sweep_point": trial.id.point, "variant": trial.id.variant, "repeat": trial.id.repeat}
    _write_document(partial / TRIAL_FACTS, {**trial.facts, **own}, TrialFacts)
    return partial.rename(path)


def write_trial_files(run: Path, trial: TrialId, files: Mapping[str, bytes]) -> Path:
    """Keep a trial that was written elsewhere, by the names and the contents of its files, as ``write_trial`` does."""
    path, partial = _begun_trial(run, trial)
    for name, content in files.items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).write_bytes(content)
    return partial.rename(path)


def read_trial_files(run: Path, trial: TrialId) -> dict[str, bytes]:
    """Return the files of a finished trial: contents by name in its folder."""
    path = trial_path(run, *trial)
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def _begun_trial(run: Path, trial: TrialId) -> tuple[Path, Path]:
    """Return the path of a trial that is not there yet, and the empty folder that is to be renamed to it."""
    path = trial_path(run, *trial)
    if os.path.lexists(path):
        raise FileExistsError(f"{path}: this trial is there already")
    partial = path.with_name(path.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return path, partial


def remove_partial_trials(run: Path) -> None:
    """Remove what is left of trials whose writing was cut off; nobody may be writing one now."""
    for partial in run.glob(f"trials/*/*/repeat-*{PARTIAL}"):
        shutil.rmtree(partial, ignore_errors=True)


def _span_rows(key: TrialId, ranks: Sequence[SpanLogContents]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for log in ranks:
        owner = log.header
        place = (*key, owner.rank, owner.host, owner.datacenter, owner.gpu, owner.pipeline, owner.stage)
        rows.extend(
            (
                *place,
                span.iteration,
                span.microbatch,
                span.kind,
                span.start_ns,
                span.end_ns,
                span.size_bytes,
                span.peer,
                span.tensor,
                span.request,
                span.virtual_stage,
            )
            for span in log.spans
        )
    return rows
