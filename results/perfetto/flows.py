"""Match receives with sends, to draw them as arrows of a trace."""

from typing import NamedTuple

import numpy as np

from wanbed.results.perfetto.trial_tables import NO_VIRTUAL_STAGE, Spans
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import ACTIVATION, GRADIENT, message_ranks

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
