"""Write a run's trace as Chrome Trace JSON, which Perfetto opens. Trials follow each other on the same tracks."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from wanbed.ground.files import written_whole
from wanbed.results.perfetto.counters import background_steps, contention_of, gpu_steps, link_steps, tcp_steps
from wanbed.results.perfetto.trace_events import (
    Flows,
    carried_text,
    change_events,
    change_steps,
    counter_events,
    flow_events,
    flows_from_last,
    inner_slices,
    iteration_events,
    json_text,
    last_to_begin_of,
    match_transfers,
    program_slices,
    request_events,
    requests_of,
    slice_events,
    trial_event,
    waiting_rows,
)
from wanbed.results.perfetto.tracks import Tracks
from wanbed.results.perfetto.trial_tables import LinkCounters, Spans, TcpColumns, Texts, read_columns
from wanbed.results.reading.selection import (
    NoSuchTrialError,
    Selection,
    choices,
    finished_trials,
    swept_points,
)
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.schema import SCHEMA_VERSION
from wanbed.results.records.span_columns import Column
from wanbed.results.records.trial_files import read_trial_table
from wanbed.results.records.trial_tables import (
    BACKGROUND_SAMPLES_FILE,
    GPU_SAMPLES_FILE,
    LINK_CHANGES_FILE,
    LINK_SAMPLES_FILE,
    SPANS_FILE,
    TCP_SAMPLES_FILE,
)
from wanbed.results.text import kind_text

GAP_SHARE = 0.05
"""The gap between a trial and the next one, as a share of the trial's length."""

_ROWS = 2**18
"""The most rows that are converted to text at a time; each takes some hundred bytes."""

_GZIP_LEVEL = 4
"""Higher levels take longer than producing the text, and make the file at most an eighth smaller."""


@dataclass(frozen=True)
class TraceCounts:
    """The numbers of a trace's events.

    ``slices`` are those of GPUs, transfers, trials, iterations and requests, ``instants`` the changes of links.
    """

    trials: int = 0
    slices: int = 0
    flows: int = 0
    counters: int = 0
    instants: int = 0


def write_trace(run: Path, destination: Path, selection: Selection) -> TraceCounts:
    """Write the selected trials of a run, or the selected iteration of each; compress if the name ends in ``.gz``.

    Only one trial is in memory at a time. If writing fails, no file is left. Raise RunError if the run is damaged,
    NoTrialsError if no trial has finished, and NoSuchTrialError if the run has nothing that was selected.
    """
    manifest, finished = finished_trials(run)
    trials = selection.of(finished, swept_points(manifest))
    with _whole_or_not_at_all(destination) as file:
        writer = _Writer(file)
        writer.begin(manifest)
        for trial in trials:
            writer.trial(trial, selection.iteration)
        if not writer.counts.trials:
            existing = choices(sorted(writer.iterations))
            raise NoSuchTrialError(f"--iteration {selection.iteration}: there is none such, {existing}")
        writer.end()
    return writer.counts


@contextmanager
def _whole_or_not_at_all(destination: Path) -> Iterator[BinaryIO]:
    with written_whole(destination) as partial, partial.open("wb") as raw:
        if destination.suffix == ".gz":
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as file:
                yield cast("BinaryIO", file)
        else:
            yield raw


class _Writer:
    """Write trial after trial.

    ``_at_ns`` is the time in the trace at which the next trial begins; ``iterations`` are all iterations found so far.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tracks = Tracks()
        self._at_ns = 0
        self.counts = TraceCounts()
        self.iterations: set[int] = set()

    def begin(self, manifest: Mapping[str, Any]) -> None:
        versions = manifest.get("versions") or {}
        about = {
            "run": manifest.get("name"),
            **{name: manifest.get(name) for name in ("config_hash", "engine", "clock", "dilation", "complete")},
            "wanbed": versions.get("wanbed"),
            "schema_version": SCHEMA_VERSION,
        }
        self._file.write(f'{{"displayTimeUnit":"ms","otherData":{json_text(about)},"traceEvents":[\n'.encode())

    def end(self) -> None:
        names = ",\n".join(json_text(event) for event in self._tracks.metadata())
        self._file.write(f"{names}\n]}}\n".encode())

    def trial(self, trial: StoredTrial, iteration: int | None) -> None:
        """Write one trial. If ``iteration`` is given, write only that iteration, or nothing if the trial lacks it."""
        spans = read_columns(Spans, trial, SPANS_FILE)
        of_trial = np.unique(spans.iteration).tolist()
        profiled = frozenset(of_trial[max(len(of_trial) - (trial.profiled_iterations or 0), 0) :])
        self.iterations |= set(of_trial)
        contended_ns = contention_of(spans, trial.settings)
        if iteration is not None:
            own = spans.iteration == iteration
            spans, contended_ns = spans[own], contended_ns[own]
            if not len(spans):
                return
        links = read_columns(LinkCounters, trial, LINK_SAMPLES_FILE)
        states = read_columns(TcpColumns, trial, TCP_SAMPLES_FILE)
        samples = read_trial_table(trial.folder, trial.id, GPU_SAMPLES_FILE).to_pylist()
        changes = read_trial_table(trial.folder, trial.id, LINK_CHANGES_FILE).to_pylist()
        background = read_trial_table(trial.folder, trial.id, BACKGROUND_SAMPLES_FILE).to_pylist()
        requests = requests_of(trial)
        moments = [spans.start_ns, spans.end_ns]
        if iteration is None:
            # Include 0: times count from the trial's start, which is before its first span.
            of_gpus = np.array([row["time_ns"] for row in samples], np.int64)
            moments += [np.zeros(1, np.int64), links.time_ns, states.time_ns, requests.moments_ns, of_gpus]
        begin_ns = min(int(times.min()) for times in moments if len(times))
        end_ns = max(int(times.max()) for times in moments if len(times))
        shift_ns = self._at_ns - begin_ns
        iterations = iteration_events(spans, trial, self._tracks, shift_ns, profiled)
        whole = trial_event(trial, self._tracks, self._at_ns, self._at_ns + end_ns - begin_ns)
        self._file.write("".join((whole, *iterations)).encode())
        self._count(trials=1, slices=1 + len(iterations) // 2)
        served = request_events(requests, self._tracks, begin_ns, end_ns, shift_ns)
        self._file.write("".join(served).encode())
        self._count(slices=len(served) // 2)
        if trial.program is None:
            self._spans(spans, contended_ns, shift_ns)
        else:
            self._spans_of_program(spans, shift_ns)
        counters = (
            link_steps(links, begin_ns, end_ns),
            tcp_steps(states, begin_ns, end_ns),
            background_steps(background, begin_ns, end_ns),
            change_steps(changes, begin_ns, end_ns),
            gpu_steps(samples, begin_ns, end_ns),
        )
        for steps in chain(*counters):
            track = self._tracks.counter(steps.scope, steps.source, steps.destination, steps.quantity)
            self._write(counter_events(steps, *track, shift_ns))
            self._count(counters=len(steps.time_ns))
        changed = change_events(changes, self._tracks.links, begin_ns, end_ns, shift_ns)
        self._file.write("".join(changed).encode())
        self._count(instants=len(changed))
        self._at_ns += round((end_ns - begin_ns) * (1 + GAP_SHARE))

    def _spans(self, spans: Spans, contended_ns: Column, shift_ns: int) -> None:
        process, thread = self._tracks.of_spans(spans)
        for piece in _pieces(len(spans)):
            at_ns = spans.start_ns[piece] + shift_ns
            self._write(slice_events(spans[piece], process[piece], thread[piece], at_ns, contended_ns[piece]))
        self._count(slices=len(spans))
        self._transfers(spans, process, thread, shift_ns)

    def _spans_of_program(self, spans: Spans, shift_ns: int) -> None:
        process, thread = self._tracks.of_spans(spans, of_program=True)
        last = last_to_begin_of(spans)
        for piece in _pieces(len(spans)):
            rows = np.arange(len(spans))[piece]
            waiting = waiting_rows(spans, last, rows)
            self._write(
                program_slices(spans, rows, process, thread, last=last, shift_ns=shift_ns),
                *inner_slices(spans, waiting, process, thread, last=last, shift_ns=shift_ns),
            )
            self._count(slices=len(rows) + 2 * len(waiting))
        flows = flows_from_last(spans, last)
        names = Texts(spans.kind.codes, tuple(map(kind_text, spans.kind.values)))
        self._flows(flows, names, process, thread, category="collective", shift_ns=shift_ns)
        self._transfers(spans, process, thread, shift_ns)

    def _transfers(self, spans: Spans, process: Column, thread: Column, shift_ns: int) -> None:
        names = Texts(spans.tensor.codes, tuple(map(carried_text, spans.tensor.values)))
        self._flows(match_transfers(spans), names, process, thread, category="transfer", shift_ns=shift_ns)

    def _flows(
        self, flows: Flows, names: Texts, process: Column, thread: Column, *, category: str, shift_ns: int
    ) -> None:
        for piece in _pieces(len(flows.send)):
            own = Flows(*(column[piece] for column in flows))
            first = self.counts.flows + 1
            self._write(*flow_events(own, names, process, thread, category=category, first_id=first, shift_ns=shift_ns))
            self._count(flows=len(own.send))

    def _count(self, **more: int) -> None:
        self.counts = replace(self.counts, **{name: getattr(self.counts, name) + add for name, add in more.items()})

    def _write(self, *columns: pa.StringArray) -> None:
        for column in columns:
            _, offsets, texts = column.buffers()
            if len(column) and offsets and texts:
                first, last = np.frombuffer(memoryview(offsets), np.int32)[[column.offset, column.offset + len(column)]]
                self._file.write(memoryview(texts)[first:last])


def _pieces(rows: int) -> Iterator[slice]:
    return (slice(begin, begin + _ROWS) for begin in range(0, rows, _ROWS))
