"""Draw every inference request: async slices from its arrival until its KV cache is at the decode host."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wanbed.results.perfetto.lanes import assign_lanes
from wanbed.results.perfetto.trace_events import json_text
from wanbed.results.perfetto.tracks import Tracks
from wanbed.results.perfetto.trial_events import microseconds
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.span_columns import Column
from wanbed.results.records.trial_files import read_trial_table
from wanbed.results.records.trial_tables import PREFILL_REQUESTS_FILE

_PHASES = (
    ("queue", "arrival_ns", "started_ns"),
    ("prefill", "started_ns", "prefilled_ns"),
    ("KV transfer", "prefilled_ns", "kv_moved_ns"),
)
_TIMES = ("arrival_ns", "started_ns", "prefilled_ns", "kv_moved_ns")
_OUTCOMES = {"admitted": "admitted", "off_loaded": "off-loaded", "held": "held", "rejected": "rejected"}
_LANES = 1_000_000
"""The distance between the ids of two outcomes: more than the requests at any one time."""


@dataclass(frozen=True)
class Requests:
    """The requests of one trial, each a row of ``wanbed.results.records.schema.PREFILL_REQUESTS``."""

    rows: tuple[dict[str, Any], ...]

    @property
    def moments_ns(self) -> Column:
        """All known times of the requests: arrival, start, end of prefill, end of KV transfer."""
        return np.array([row[name] for row in self.rows for name in _TIMES if row[name] is not None], np.int64)


def requests_of(trial: StoredTrial) -> Requests:
    """Return the requests of a trial. Raise RunError, one line, if their file is missing or damaged."""
    return Requests(tuple(read_trial_table(trial.folder, trial.id, PREFILL_REQUESTS_FILE).to_pylist()))


def request_events(requests: Requests, tracks: Tracks, begin_ns: int, end_ns: int, shift_ns: int) -> list[str]:
    """Return the async events of the requests that were active between begin and end, cut to that range.

    Each event is one line; a begin and an end event make a slice. Each datacenter has a process, and each outcome a
    track in it. Around the requests of each lane of a track is a slice that gives the track its name. An admitted
    request that did not finish lasts until the end. A rejected one has no length, since the time of its rejection is
    unknown. A request contains slices for its known phases.
    """
    by_track: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in requests.rows:
        if row["arrival_ns"] <= end_ns and _end_ns(row, end_ns) >= begin_ns:
            by_track.setdefault((row["datacenter"], row["outcome"]), []).append(row)
    events: list[str] = []
    order = {outcome: position for position, outcome in enumerate(_OUTCOMES)}
    for (datacenter, outcome), own in sorted(by_track.items(), key=lambda item: (item[0][0], order[item[0][1]])):
        track = _Track(tracks.of_requests(datacenter), tracks.trial_thread, outcome, order[outcome] * _LANES, shift_ns)
        events += track.events(own, begin_ns, end_ns)
    return events


def _end_ns(row: dict[str, Any], trial_end_ns: int) -> int:
    if row["outcome"] == "rejected":
        return int(row["arrival_ns"])
    return trial_end_ns if row["kv_moved_ns"] is None else int(row["kv_moved_ns"])


@dataclass(frozen=True)
class _Track:
    """The track on which the requests of one datacenter with one outcome are drawn."""

    process: int
    thread: int
    outcome: str
    first_id: int
    shift_ns: int

    def events(self, rows: list[dict[str, Any]], begin_ns: int, end_ns: int) -> Iterator[str]:
        """Yield the events of all rows, lane by lane."""
        name = _OUTCOMES[self.outcome]
        starts = np.clip(np.array([row["arrival_ns"] for row in rows], np.int64), begin_ns, end_ns)
        ends = np.clip(np.array([_end_ns(row, end_ns) for row in rows], np.int64), starts, end_ns)
        lanes = assign_lanes(np.zeros(len(rows), np.int64), starts, ends)
        for lane in np.unique(lanes).tolist():
            own = np.flatnonzero(lanes == lane)
            own = own[np.argsort(starts[own], kind="stable")]
            yield self._half("b", lane, int(starts[own[0]]), name, {})
            for position in own.tolist():
                row, title = rows[position], f"request {rows[position]['request']}"
                yield self._half("b", lane, int(starts[position]), title, _about(row))
                for phase, first, last in _PHASES:
                    if row[first] is None or row[last] is None or row["outcome"] == "rejected":
                        continue
                    times = np.clip([row[first], row[last]], starts[position], ends[position])
                    if times[0] == times[1] and row[first] != row[last]:
                        continue
                    yield self._half("b", lane, int(times[0]), phase, {})
                    yield self._half("e", lane, int(times[1]), phase, {})
                yield self._half("e", lane, int(ends[position]), title, _about(row))
            yield self._half("e", lane, int(ends[own[-1]]), name, {})

    def _half(self, phase: str, lane: int, time_ns: int, name: str, about: dict[str, Any]) -> str:
        return (
            f'{{"ph":"{phase}","pid":{self.process},"tid":{self.thread},"cat":"request",'
            f'"id2":{{"local":{self.first_id + lane + 1}}},"ts":{microseconds(time_ns + self.shift_ns)},'
            f'"name":{json_text(name)},"args":{json_text(about)}}},\n'
        )


def _about(row: dict[str, Any]) -> dict[str, Any]:
    facts = {name: row[name] for name in ("request", "outcome", "prompt_tokens", "output_tokens", "chunks", "kv_bytes")}
    reason = {"reason": row["reason"]} if row["reason"] else {}
    group = {"group": row["group"]} if row["group"] >= 0 else {}
    arrival_ns, moved_ns = row["arrival_ns"], row["kv_moved_ns"]
    ttft = {} if moved_ns is None else {"ttft_ns": moved_ns - arrival_ns}
    return {**facts, **reason, **group, "was_held": row["was_held"], **ttft}
