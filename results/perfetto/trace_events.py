"""Draw what a trial did as events of a trace: text, as whole columns.

Each function returns a column of texts with one event per row: a JSON object, a comma and a line break. Times are
written from integer nanoseconds as microseconds with three decimals. The events are, in this order, arrows from sends
to receives, slices, counters, a trial and its iterations, a program's collectives, inference requests, and changes of
links.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wanbed.results.perfetto.counters import LINK, Quantity, Steps, within
from wanbed.results.perfetto.tracks import Tracks, assign_lanes
from wanbed.results.perfetto.trial_tables import NO_VIRTUAL_STAGE, Spans, Texts
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import (
    ACTIVATION,
    COLLECTIVE_KINDS,
    COMPUTE_KINDS,
    GRADIENT,
    ITERATION,
    JOINT_KINDS,
    NO_MICROBATCH,
    NO_REQUEST,
    message_ranks,
)
from wanbed.results.records.trial_files import read_trial_table
from wanbed.results.records.trial_tables import PREFILL_REQUESTS_FILE
from wanbed.results.text import kind_text

_MAX_NUMBERS = 2**62

_STAGES_ON = {ACTIVATION: 1, GRADIENT: -1}


class Flows(NamedTuple):
    """Arrows, one entry per arrow in every column.

    ``send`` and ``receive`` are rows of the spans; ``leaves_ns`` and ``arrives_ns`` are the times of the arrow's ends.
    """

    send: Column
    receive: Column
    leaves_ns: Column
    arrives_ns: Column


def match_transfers(spans: Spans) -> Flows:
    """Return an arrow from every send to its receive, in the order of the sends' rows.

    Stage ``s`` of a pipeline sends the activation of an iteration and microbatch to stage ``s + 1``, and the gradient
    to stage ``s - 1``; where stages are divided, virtual stages are meant. Of a message of which only the two ranks are
    known, its iteration counts. If a tensor was sent several times, sends and receives are matched in the order of
    their starts. There is no arrow for a send without a receive, a receive
    without a send, or a receive that starts before its send.

    An arrow leaves 1 ns after the start of the send span, so that it begins inside the span. It leaves at the start if
    the span is shorter than 2 ns or the receive starts at the same time. It arrives at the start of the receive.
    """
    offset = spans.tensor.mapped(lambda tensor: _STAGES_ON.get(tensor, 0))
    between = spans.tensor.mapped(lambda tensor: int(message_ranks("send", tensor) is not None)) == 1
    known = (offset != 0) | between
    sends, receives = (np.flatnonzero(known & spans.kind.equal(of)) for of in ("send", "receive"))
    rows = np.concatenate((sends, receives))
    stage = np.where(spans.virtual_stage == NO_VIRTUAL_STAGE, spans.stage, spans.virtual_stage)
    receiver = stage + np.where(spans.kind.mapped(lambda kind: int(kind == "send")) == 1, offset, 0)
    parts = (
        np.where(between, 0, spans.pipeline),
        np.where(between, spans.tensor.codes, receiver),
        spans.iteration,
        np.where(between, 0, spans.microbatch),
        np.where(between, 2, offset),
    )
    transfer = _numbered([part[rows] for part in parts])
    sent, received = transfer[: len(sends)], transfer[len(sends) :]
    sent, received = _counted(sent, spans.start_ns[sends]), _counted(received, spans.start_ns[receives])
    _, of_sends, of_receives = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
    order = np.argsort(of_sends)
    send, receive = sends[of_sends[order]], receives[of_receives[order]]
    causal = spans.start_ns[receive] >= spans.start_ns[send]
    send, receive = send[causal], receive[causal]
    start_ns, arrives_ns = spans.start_ns[send], spans.start_ns[receive]
    inside = (spans.end_ns[send] - start_ns >= 2) & (arrives_ns > start_ns)
    return Flows(send, receive, start_ns + inside, arrives_ns)


def carried_text(tensor: str) -> str:
    """Return what a message carries, or from which rank to which it goes where only that is known."""
    ends = message_ranks("send", tensor)
    return tensor if ends is None else f"from rank {ends[0]} to {ends[1]}"


def _numbered(parts: list[Column]) -> Column:
    """Return a number from 0 for every row; rows that are equal in all parts have the same number."""
    number, numbers = np.zeros(len(parts[0]), np.int64), 1
    for part in parts:
        digit = part - part.min(initial=0)
        digits = int(digit.max(initial=0)) + 1
        if numbers * digits >= _MAX_NUMBERS:
            (number, numbers), (digit, digits) = _dense(number), _dense(digit)
        number, numbers = number * digits + digit, numbers * digits
    return _dense(number)[0]


def _dense(values: Column) -> tuple[Column, int]:
    """Return the rank of every value among the distinct values, and the number of distinct values, at least 1."""
    distinct, ranks = np.unique(values, return_inverse=True)
    return ranks, max(len(distinct), 1)


def _counted(number: Column, start_ns: Column) -> Column:
    """Return a unique number for each row: ``number`` combined with the row's rank by start among equal numbers."""
    order = np.lexsort((start_ns, number))
    ordered = number[order]
    position = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.diff(ordered, prepend=-1) != 0, position, 0))
    counted = np.empty(len(order), np.int64)
    counted[order] = (position - first) * 2**32 + ordered
    return counted


_TRANSFERS = ("send", "receive")


# Build Arrow arrays from buffers. To infer a type, Arrow would import pandas, which takes longer than all the rest.
def _column(values: Column) -> pa.Int64Array:
    numbers = pa.py_buffer(np.ascontiguousarray(values).data)
    return cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(values), [None, numbers]))


def _texts(values: Sequence[str]) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(encoded)))


def _single(text: str) -> pa.StringScalar:
    return _texts([text])[0]


_DECIMALS = _texts([f".{value:03d}" for value in range(1000)])


def json_text(value: Any) -> str:
    """Return any value as JSON, without ASCII escapes, since the trace engine shows names of events as written."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def thousandths_text(thousandths: Column) -> pa.StringArray:
    """Return integers divided by 1000 as text, with three decimals and no rounding. They must not be negative."""
    whole, rest = np.divmod(thousandths, 1000)
    return joined(integers(whole), _DECIMALS.take(_column(rest)))


def slice_events(spans: Spans, process: Column, thread: Column, at_ns: Column, contended_ns: Column) -> pa.StringArray:
    """Return an ``X`` event for every span, which starts at ``at_ns``; contended ones carry ``contended_us``."""
    of_microbatch = spans.microbatch != NO_MICROBATCH
    of_request = spans.request != NO_REQUEST
    of_virtual = spans.virtual_stage != NO_VIRTUAL_STAGE
    name_of_virtual: pa.StringArray | str = ""
    argument_of_virtual: pa.StringArray | str = ""
    if of_virtual.any():
        virtual = integers(spans.virtual_stage)
        name_of_virtual = _only_if(of_virtual, joined(" of virtual stage ", virtual))
        argument_of_virtual = _only_if(of_virtual, joined(',"virtual_stage":', virtual))
    microbatch, request = integers(spans.microbatch), integers(spans.request)
    transfers = spans.kind.mapped(lambda kind: int(kind in _TRANSFERS)) == 1
    return joined(
        '{"ph":"X","pid":',
        integers(process),
        ',"tid":',
        integers(thread),
        ',"ts":',
        thousandths_text(at_ns),
        ',"dur":',
        thousandths_text(spans.end_ns - spans.start_ns),
        ',"name":"',
        chosen(spans.kind, lambda kind: json_text(kind_text(kind))[1:-1]),
        chosen(spans.tensor, lambda tensor: json_text(f" {carried_text(tensor)}" if tensor else "")[1:-1]),
        _only_if(of_microbatch, joined(" ", microbatch)),
        name_of_virtual,
        _only_if(of_request, joined(" of request ", request)),
        '","cat":',
        chosen(spans.kind, lambda kind: json_text("compute" if kind in COMPUTE_KINDS else kind)),
        ',"args":{"pipeline":',
        integers(spans.pipeline),
        ',"stage":',
        integers(spans.stage),
        ',"iteration":',
        integers(spans.iteration),
        _only_if(of_microbatch, joined(',"microbatch":', microbatch)),
        argument_of_virtual,
        _only_if(of_request, joined(',"request":', request)),
        _only_if(spans.size_bytes != 0, joined(',"bytes":', integers(spans.size_bytes))),
        _only_if(contended_ns != 0, joined(',"contended_us":', thousandths_text(contended_ns))),
        _only_if(transfers, joined(',"peer":', chosen(spans.peer, json_text))),
        "}},\n",
    )


def flow_events(
    flows: Flows, names: Texts, process: Column, thread: Column, *, category: str, first_id: int, shift_ns: int
) -> list[pa.StringArray]:
    """Return the beginnings of all arrows, then their ends; ids count up from ``first_id``, ``names`` are of the spans.

    The viewer must read a beginning before its end, since both may be at the same time.
    """
    number = integers(np.arange(first_id, first_id + len(flows.send), dtype=np.int64))
    name = names[flows.send]
    ends = (
        ('{"ph":"s","id":', flows.send, flows.leaves_ns),
        ('{"ph":"f","bp":"e","id":', flows.receive, flows.arrives_ns),
    )
    return [
        joined(
            phase,
            number,
            ',"pid":',
            integers(process[rows]),
            ',"tid":',
            integers(thread[rows]),
            ',"ts":',
            thousandths_text(times_ns + shift_ns),
            f',"cat":"{category}","name":',
            chosen(name, json_text),
            "},\n",
        )
        for phase, rows, times_ns in ends
    ]


def counter_events(steps: Steps, process: int, name: str, shift_ns: int) -> pa.StringArray:
    """Return a ``C`` event for every step of a counter."""
    return joined(
        f'{{"ph":"C","pid":{process},"ts":',
        thousandths_text(steps.time_ns + shift_ns),
        f',"name":{json_text(name)},"args":{{{json_text(steps.quantity.unit)}:',
        thousandths_text(steps.thousandths),
        "}},\n",
    )


def joined(*parts: pa.StringArray | str) -> pa.StringArray:
    """Concatenate texts row by row; a part that is a single text is repeated in every row."""
    # The function's stub accepts only columns, not single texts.
    join: Callable[..., pa.StringArray] = pc.binary_join_element_wise
    return join(*(_single(part) if isinstance(part, str) else part for part in (*parts, "")))


def integers(values: Column) -> pa.StringArray:
    """Return integers as text."""
    return cast("pa.StringArray", _column(values).cast(pa.string()))


def chosen(texts: Texts, written: Callable[[str], str]) -> pa.StringArray:
    """Return for every row the result of ``written`` for its text, which is called once per distinct text."""
    return _texts([written(value) for value in texts.values]).take(_column(texts.codes))


def _only_if(condition: npt.NDArray[np.bool_], texts: pa.StringArray) -> pa.StringArray:
    """Return the texts where the condition is true, and "" elsewhere."""
    return cast("pa.StringArray", pc.if_else(_column(condition.astype(np.int64)).cast(pa.bool_()), texts, _single("")))


_WORK = (*COMPUTE_KINDS, *JOINT_KINDS)


def trial_event(trial: StoredTrial, tracks: Tracks, begin_ns: int, end_ns: int) -> str:
    """Return the slice of a whole trial, as one line."""
    about = {"sweep_point": trial.point, "swept": trial.values, "variant": trial.variant, "repeat": trial.repeat}
    return (
        f'{{"ph":"X","pid":{tracks.trials},"tid":{tracks.trial_thread},"ts":{microseconds(begin_ns)},'
        f'"dur":{microseconds(end_ns - begin_ns)},"name":{json_text(trial.title)},"cat":"trial",'
        f'"args":{json_text(about)}}},\n'
    )


def iteration_events(
    spans: Spans, trial: StoredTrial, tracks: Tracks, shift_ns: int, profiled: Set[int] = frozenset()
) -> list[str]:
    """Return the async events of all iterations, one line each; ``profiled`` are those that a profiler recorded.

    A begin and an end event make a slice. An iteration lasts from the start of its first computation or collective to
    the end of its last one, and from its first computation where replicas synchronise seldom; of a program, whose ranks
    state it, from the last rank's begin to the last one's end. Iterations may overlap; those that do not overlap share
    an id, and a slice around them that gives the track its name.
    """
    of_program = trial.program is not None
    kinds = (ITERATION,) if of_program else _WORK
    work = spans[spans.kind.mapped(lambda kind: int(kind in kinds)) == 1]
    iterations, position = np.unique(work.iteration, return_inverse=True)
    start_ns = np.full(len(iterations), np.iinfo(np.int64).min if of_program else np.iinfo(np.int64).max)
    end_ns = np.full(len(iterations), np.iinfo(np.int64).min)
    begun_ns = work.start_ns
    if trial.sync_every is not None:
        # A synchronisation begins in an earlier iteration than the one that applies it.
        begun_ns = np.where(work.kind.equal("all_reduce"), np.iinfo(np.int64).max, begun_ns)
    (np.maximum if of_program else np.minimum).at(start_ns, position, begun_ns)
    np.maximum.at(end_ns, position, work.end_ns)
    lanes = assign_lanes(np.zeros(len(iterations), np.int64), start_ns, end_ns)
    warmup = trial.warmup_iterations
    place = f'"pid":{tracks.trials},"tid":{tracks.trial_thread},"cat":"iteration"'
    events = []

    def emit(phase: str, lane: int, time_ns: int, name: str, about: Mapping[str, Any]) -> None:
        at = f'"id2":{{"local":{lane + 1}}},"ts":{microseconds(time_ns + shift_ns)}'
        events.append(f'{{"ph":"{phase}",{place},{at},"name":"{name}","args":{json_text(about)}}},\n')

    for lane in np.unique(lanes).tolist():
        own = np.flatnonzero(lanes == lane)[np.argsort(start_ns[lanes == lane])].tolist()
        emit("b", lane, int(start_ns[own[0]]), "iterations", {})
        for each in own:
            number = int(iterations[each])
            about = {"iteration": number, "measured": number >= warmup and number not in profiled}
            if of_program:
                about["profiled"] = number in profiled
            for phase, time_ns in (("b", int(start_ns[each])), ("e", int(end_ns[each]))):
                emit(phase, lane, time_ns, f"iteration {number}", about)
        emit("e", lane, int(end_ns[own[-1]]), "iterations", {})
    return events


def microseconds(time_ns: int) -> str:
    """Return a time in nanoseconds as microseconds with three decimals."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


UNKNOWN = -1


def last_to_begin_of(spans: Spans) -> Column:
    """Return for each span of a collective the row of the same collective's span that began last, else ``UNKNOWN``."""
    # Metrics import pandas, which takes longer than writing the trace of a run that does not need them.
    from wanbed.results.metrics import group_size, last_to_begin  # noqa: PLC0415

    last = np.full(len(spans), UNKNOWN)
    rows = np.flatnonzero(spans.kind.mapped(lambda kind: int(kind in COLLECTIVE_KINDS)) == 1)
    own = spans[rows]
    found = last_to_begin(
        rank=own.rank,
        kind=own.kind.codes,
        group=own.tensor.codes,
        size=own.tensor.mapped(group_size),
        iteration=own.iteration,
        start_ns=own.start_ns,
    )
    last[rows[found >= 0]] = rows[found[found >= 0]]
    return last


def waiting_rows(spans: Spans, last: Column, rows: Column) -> Column:
    """Return those of the rows whose collective began earlier than that of the last rank, and had not ended by then."""
    known = rows[last[rows] >= 0]
    begins_ns = spans.start_ns[last[known]]
    return known[(spans.start_ns[known] < begins_ns) & (begins_ns < spans.end_ns[known])]


def program_slices(
    spans: Spans, rows: Column, process: Column, thread: Column, *, last: Column, shift_ns: int
) -> pa.StringArray:
    """Return an ``X`` event for each of these rows; a collective has the rank that began last, unless unknown."""
    own, of_last = spans[rows], np.maximum(last[rows], 0)
    known = last[rows] >= 0
    waited_ns = np.maximum(spans.start_ns[of_last] - own.start_ns, 0)
    stated = own.kind.equal(ITERATION)
    collective = own.kind.mapped(lambda kind: int(kind in COLLECTIVE_KINDS)) == 1
    grouped = collective & (own.tensor.mapped(lambda group: int(group != "")) == 1)
    aimed = own.peer.mapped(lambda peer: int(peer != "")) == 1
    return joined(
        *_place(process[rows], thread[rows], own.start_ns + shift_ns, own.end_ns - own.start_ns),
        ',"name":"',
        chosen(own.kind, lambda kind: json_text(kind_text(kind))[1:-1]),
        _only_if(stated, joined(" ", integers(own.iteration))),
        '","cat":',
        chosen(own.kind, lambda kind: json_text("compute" if kind in COMPUTE_KINDS else kind)),
        *_about_program(own),
        _only_if(own.size_bytes != 0, joined(',"bytes":', integers(own.size_bytes))),
        _only_if(grouped, joined(',"group":', chosen(own.tensor, json_text))),
        _only_if(known, joined(',"last_to_begin":"', *_rank(spans, of_last), '"')),
        _only_if(known, joined(',"waited_us":', thousandths_text(waited_ns))),
        _only_if(aimed, joined(',"peer":', chosen(own.peer, json_text))),
        "}},\n",
    )


def inner_slices(
    spans: Spans, rows: Column, process: Column, thread: Column, *, last: Column, shift_ns: int
) -> list[pa.StringArray]:
    """Return two ``X`` events inside each slice of these rows: before the last rank began the collective, and after."""
    own, begins_ns = spans[rows], spans.start_ns[last[rows]]
    waiting = ("waiting for ", *_rank(spans, last[rows]))
    return [
        joined(
            *_place(process[rows], thread[rows], starts_ns + shift_ns, ends_ns - starts_ns),
            ',"name":"',
            *name,
            f'","cat":"{category}"',
            *_about_program(own),
            "}},\n",
        )
        for name, category, starts_ns, ends_ns in (
            (waiting, "waiting", own.start_ns, begins_ns),
            (("transferring",), "transferring", begins_ns, own.end_ns),
        )
    ]


def flows_from_last(spans: Spans, last: Column) -> Flows:
    """Return an arrow from the rank that began a collective last to each one that waited for it, at that moment.

    It ends at the second one of the ``inner_slices``: a viewer turns an arrow round that ends at a slice which began
    before the one where the arrow does.
    """
    receive = waiting_rows(spans, last, np.arange(len(spans)))
    send = last[receive]
    return Flows(send, receive, spans.start_ns[send], spans.start_ns[send])


def _place(process: Column, thread: Column, at_ns: Column, length_ns: Column) -> tuple[pa.StringArray | str, ...]:
    times = thousandths_text(at_ns), ',"dur":', thousandths_text(length_ns)
    return '{"ph":"X","pid":', integers(process), ',"tid":', integers(thread), ',"ts":', *times


def _about_program(spans: Spans) -> tuple[pa.StringArray | str, ...]:
    return ',"args":{"rank":', integers(spans.rank), ',"iteration":', integers(spans.iteration)


def _rank(spans: Spans, rows: Column) -> tuple[pa.StringArray | str, ...]:
    """Return the rank of these rows and its host, as parts of a JSON text."""
    host: Texts = spans.host[rows]
    return "rank ", integers(spans.rank[rows]), " on ", chosen(host, lambda name: json_text(name)[1:-1])


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
                yield self._half("b", lane, int(starts[position]), title, _about_request(row))
                for phase, first, last in _PHASES:
                    if row[first] is None or row[last] is None or row["outcome"] == "rejected":
                        continue
                    times = np.clip([row[first], row[last]], starts[position], ends[position])
                    if times[0] == times[1] and row[first] != row[last]:
                        continue
                    yield self._half("b", lane, int(times[0]), phase, {})
                    yield self._half("e", lane, int(times[1]), phase, {})
                yield self._half("e", lane, int(ends[position]), title, _about_request(row))
            yield self._half("e", lane, int(ends[own[-1]]), name, {})

    def _half(self, phase: str, lane: int, time_ns: int, name: str, about: dict[str, Any]) -> str:
        return (
            f'{{"ph":"{phase}","pid":{self.process},"tid":{self.thread},"cat":"request",'
            f'"id2":{{"local":{self.first_id + lane + 1}}},"ts":{microseconds(time_ns + self.shift_ns)},'
            f'"name":{json_text(name)},"args":{json_text(about)}}},\n'
        )


def _about_request(row: dict[str, Any]) -> dict[str, Any]:
    facts = {name: row[name] for name in ("request", "outcome", "prompt_tokens", "output_tokens", "chunks", "kv_bytes")}
    reason = {"reason": row["reason"]} if row["reason"] else {}
    group = {"group": row["group"]} if row["group"] >= 0 else {}
    arrival_ns, moved_ns = row["arrival_ns"], row["kv_moved_ns"]
    ttft = {} if moved_ns is None else {"ttft_ns": moved_ns - arrival_ns}
    return {**facts, **reason, **group, "was_held": row["was_held"], **ttft}


_QUANTITIES = (
    ("rate_bps", Quantity("configured rate", "Mbit/s"), 1e-3),
    ("node_pair_rate_bps", Quantity("configured rate of a node pair", "Mbit/s"), 1e-3),
    ("latency_ns", Quantity("configured latency", "ms"), 1e-3),
    ("jitter_ns", Quantity("configured jitter", "ms"), 1e-3),
    ("loss", Quantity("configured loss", "%"), 1e5),
)
"""A column of the changes, its quantity, and the factor to thousandths of that. A link that is down loses all."""

Row = Mapping[str, Any]


def change_steps(changes: Sequence[Row], begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield the settings of each direction of a link, from rows of ``wanbed.results.records.schema.LINK_CHANGES``.

    A quantity that is unlimited at any time, and a jitter or loss that there never is, is left out.
    """
    for (source, destination), rows in _by_direction(changes).items():
        time_ns = np.array([_applied_ns(row) for row in rows], np.int64)
        for column, quantity, factor in _QUANTITIES:
            values = [1.0 if column == "loss" and not row["up"] else row[column] for row in rows]
            if any(value is None for value in values) or (column in {"loss", "jitter_ns"} and not any(values)):
                continue
            thousandths = np.array([round(value * factor) for value in values], np.int64)
            yield Steps(LINK, source, destination, quantity, *within(time_ns, thousandths, begin_ns, end_ns))


def change_events(changes: Sequence[Row], process: int, begin_ns: int, end_ns: int, shift_ns: int) -> list[str]:
    """Return an instant for each change in a time range, one line each; the first conditions are none."""
    events = []
    for (source, destination), rows in _by_direction(changes).items():
        for before, row in pairwise(rows):
            at_ns = _applied_ns(row)
            if begin_ns <= at_ns <= end_ns:
                name = f"{source} \u2192 {destination}: {_changed_text(before, row)}"
                late = None if row["applied_ns"] is None else (row["applied_ns"] - row["due_ns"]) / 1e3
                about = {"due_us": (row["due_ns"] + shift_ns) / 1e3, "applied_after_us": late}
                events.append(
                    f'{{"ph":"i","s":"p","pid":{process},"tid":0,"ts":{microseconds(at_ns + shift_ns)},'
                    f'"name":{json_text(name)},"cat":"link change","args":{json_text(about)}}},\n'
                )
    return events


def _applied_ns(row: Row) -> int:
    applied_ns = row["applied_ns"]
    return int(row["due_ns"] if applied_ns is None else applied_ns)


def _by_direction(changes: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(changes, key=lambda row: int(row["due_ns"])):
        found.setdefault((row["source"], row["destination"]), []).append(row)
    return found


def _changed_text(before: Row, row: Row) -> str:
    """Return what changed, as ``rate 50 Mbit/s, latency 20 ms``."""
    if row["up"] != before["up"]:
        return "up" if row["up"] else "down"
    texts = []
    for column, quantity, factor in _QUANTITIES:
        if row[column] != before[column]:
            value = "unlimited" if row[column] is None else f"{row[column] * factor / 1000:g} {quantity.unit}"
            texts.append(f"{quantity.name.removeprefix('configured ')} {value}")
    return ", ".join(texts)
