"""Log the spans of one rank while it runs, so that the log can be read even if the rank is killed.

A span log is a text file. Its first line is the header, one JSON object. Each further line is one of

- a span, a JSON array in ``Span``'s field order, which ends before ``virtual_stage`` if that is None;
- the loss of one replica in one iteration, ``{"iteration": 0, "loss": 6.1}``;
- a sum over a star of replicas, logged by the rank that gathers, ``{"sum": 0, "ranks": [0, 2], "late": 0}``; a replica
  that it has lost, ``{"lost": 2, "time_ns": 12}``; and at its end how many parts came too late for any sum,
  ``{"dropped": 1}``;
- where a replica has joined a training under way, the iteration that it began with, ``{"joined": 5, "time_ns": 12}``;
- the rank's record of its device, written at its end, ``{"device": {...}}``;
- the last line of a rank that ended normally, ``{"complete": true}``.

The log of a killed rank lacks that last line and may end in a partial line; its complete lines are valid. This module
imports only the standard library and small modules of ``ground``, so that a rank starts in tens of milliseconds.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from wanbed.ground.dataclass_json import from_document
from wanbed.ground.errors import WanbedError, shown
from wanbed.ground.files import naming, regular_file, written_whole

SPAN_LOG_VERSION = 2

ComputeKind = Literal["forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer"]
OtherCollectiveKind = Literal["all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier", "collective"]
SpanKind = Literal[ComputeKind, "all_reduce", "send", "receive", "prefill", "iteration", OtherCollectiveKind, "norm"]
COMPUTE_KINDS: tuple[str, ...] = get_args(ComputeKind)
"""The kinds of training's compute spans; inference computes ``PREFILL``."""
PREFILL = "prefill"
ITERATION = "iteration"
"""The kind of the spans that state a rank's iterations themselves, from the end of one to the end of the next."""
ALL_REDUCE = "all_reduce"
NORM = "norm"
"""The kind of the all-reduce of the gradient norm over all ranks, for which optimizer steps wait."""
COLLECTIVE_KINDS: tuple[str, ...] = (ALL_REDUCE, *get_args(OtherCollectiveKind))
"""The kinds of operations of a group of ranks; ``collective`` is one that has no name here."""
JOINT_KINDS = (*COLLECTIVE_KINDS, NORM)
"""The kinds of spans in which ranks do something together."""
SPAN_KINDS: tuple[str, ...] = get_args(SpanKind)
PROFILED_KINDS: tuple[str, ...] = (
    *(kind for kind in COMPUTE_KINDS if kind != "optimizer"),
    *COLLECTIVE_KINDS,
    "send",
    "receive",
)
"""The kinds that only a profiler's record of a user's program gives; an optimizer's steps are known without."""

MAX_ITERATIONS = 10_000
"""The most iterations that a trial may have; the first is number 0."""

NO_MICROBATCH = -1
NO_REQUEST = -1

ACTIVATION, GRADIENT = "activation", "gradient"


class Span(NamedTuple):
    """One activity that occupied one GPU, or its network.

    Times are integer nanoseconds since the trial's start, on the testbed's clock, which is dilated if the run is. A
    send span lasts from the first byte offered to the kernel until the last byte accepted; a receive span from the
    first byte read until the last; an all-reduce span from its first step to its last. ``size_bytes`` is the payload,
    for an all-reduce the size of what is reduced, and 0 for computation. ``peer`` is the other host of a send or
    receive, else "". ``tensor`` is what a send or receive carried, ``ACTIVATION`` or ``GRADIENT``, or, where only that
    is known, from which rank to which, like "0,2"; of a collective in a user's program it is the ranks of its process
    group, like "0,1,2"; else "".
    ``request`` is the number of a prefill's inference request; the ``iteration`` of a prefill is the one that training
    was in. ``virtual_stage`` is the one that is computed, that sends or that receives; None where stages are not
    divided into virtual stages, and for what concerns none.
    """

    kind: str
    iteration: int
    microbatch: int
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    peer: str = ""
    tensor: str = ""
    request: int = NO_REQUEST
    virtual_stage: int | None = None


def between_ranks(sender: int, receiver: int) -> str:
    """Return the ``tensor`` of a message of which only its two ranks are known."""
    return f"{sender},{receiver}"


def message_ranks(kind: str, tensor: str) -> tuple[int, int] | None:
    """Return from which rank to which a span's message goes, where its ``tensor`` says these; None elsewhere."""
    sender, _, receiver = tensor.partition(",") if kind in {"send", "receive"} else ("", "", "")
    return (int(sender), int(receiver)) if sender.isdecimal() and receiver.isdecimal() else None


@dataclass(frozen=True)
class RankPlace:
    """The number of a rank, and its place in the emulated network and the pipeline. Heads its span log."""

    rank: int
    host: str
    datacenter: str
    gpu: int
    pipeline: int
    stage: int


@dataclass(frozen=True)
class DeviceRecord:
    """The facts of its device that a computing rank reports at its end. Durations are machine time, not dilated.

    ``device`` is the GPU's UUID or "cpu", which shows which ranks shared a device. ``to_host_bytes`` of messages were
    copied from the device in ``to_host_ns``, ``to_device_bytes`` to the device in ``to_device_ns``; all four are 0 if
    the device shares the CPU's memory. ``clock_error_ns`` is the largest error of a span's times that results from the
    device's own clock. ``check_iteration`` is the iteration that torch.profiler recorded too, None if there is no such
    iteration. In it the device was busy for ``check_spans_ns`` according to the spans, and for ``check_profiler_ns``
    according to the profiler. ``deterministic`` is whether torch refused kernels that may give other bits in another
    run, None if the log does not record it.
    """

    device: str
    model: str
    to_host_bytes: int = 0
    to_host_ns: int = 0
    to_device_bytes: int = 0
    to_device_ns: int = 0
    clock_error_ns: int = 0
    check_iteration: int | None = None
    check_spans_ns: int = 0
    check_profiler_ns: int = 0
    deterministic: bool | None = None


@dataclass(frozen=True)
class SwappedGroup:
    """A group of ``layers`` that was swapped. Times are medians: all microbatches' in a pass, and one load's."""

    layers: int
    size_bytes: int
    forward_ns: int
    backward_ns: int
    load_ns: int


@dataclass(frozen=True)
class SwappingRecord:
    """Report, at its end, what a rank swapped that takes a whole model through its device. Durations are machine time.

    ``memory_bytes`` is what the device had for the weights of two groups. Both passes, from the begin of the first load
    to the end of the last backward, took ``both_passes_ns`` (a median), and take ``formula_ns`` by the formula of the
    groups' own times. ``planned_ns`` is what the times gave by which the groups were chosen, None if they were given.
    Over ``iterations`` iterations ``loaded_bytes`` of weights were copied to the device in ``load_ns``, and
    ``returned_bytes`` of gradients to the host in ``return_ns``. Meanwhile the device computed, but for
    ``load_wait_ns`` in which it waited for loads. The optimizer waited ``return_wait_ns`` for gradients.
    """

    groups: tuple[SwappedGroup, ...]
    memory_bytes: int
    planned_ns: int | None
    formula_ns: int
    both_passes_ns: int
    iterations: int
    loaded_bytes: int
    load_ns: int
    returned_bytes: int
    return_ns: int
    load_wait_ns: int
    return_wait_ns: int


@dataclass(frozen=True)
class GatheredSum:
    """Sum ``number`` of a star of replicas: the ranks whose parts it is of, in the order in which these came.

    ``late`` of them were meant for an earlier sum.
    """

    number: int
    ranks: tuple[int, ...]
    late: int


@dataclass(frozen=True)
class LostReplica:
    """A replica that the others went on without, from the time on at which the one that gathers has lost it."""

    rank: int
    time_ns: int


@dataclass(frozen=True)
class JoinedTraining:
    """A replica has joined a training under way: it began at ``iteration``, when it had the weights of the others."""

    iteration: int
    time_ns: int


@dataclass(frozen=True)
class SpanLogContents:
    """The contents of a log. ``complete``: the rank ended normally; ``losses`` are (iteration, loss) pairs.

    ``device`` is None if the rank did not really compute. ``sums``, ``lost`` and ``dropped`` are what the rank that
    gathers over a star has logged: its sums, the replicas that it has lost, and the parts that came too late for any.
    ``joined`` is None for a rank that was there from the beginning. ``swapping`` is None for a rank that swaps nothing.
    """

    header: RankPlace
    spans: tuple[Span, ...]
    complete: bool
    losses: tuple[tuple[int, float], ...] = ()
    device: DeviceRecord | None = None
    sums: tuple[GatheredSum, ...] = ()
    lost: tuple[LostReplica, ...] = ()
    dropped: int = 0
    joined: JoinedTraining | None = None
    swapping: SwappingRecord | None = None


class SpanLogError(WanbedError, ValueError):
    """Raised for a file that is no span log. The message is one line that starts with the path."""


class SpanLog:
    """Collect spans and losses in memory and append them to the file at each ``flush``.

    The file gets its name only after its header is written, so that a reader never finds it without one.
    """

    def __init__(self, path: Path, header: RankPlace) -> None:
        self._pending: list[tuple[Any, ...] | dict[str, Any]] = []
        with written_whole(path) as partial:
            self._file = partial.open("w", encoding="utf-8")
            self._write([{"version": SPAN_LOG_VERSION, **asdict(header)}])

    def record(self, span: Span) -> None:
        """Add one span; cheap enough for the hot path."""
        self._pending.append(span if span.virtual_stage is not None else span[:-1])

    def record_loss(self, iteration: int, loss: float) -> None:
        """Add the mean loss of this replica's microbatches in an iteration. Call it once, at its last stage's rank."""
        self._pending.append({"iteration": iteration, "loss": loss})

    def record_gathered(self, number: int, ranks: Iterable[int], late: int) -> None:
        """Add a sum over a star of replicas, at the rank that gathers."""
        self._pending.append({"sum": number, "ranks": [*ranks], "late": late})

    def record_lost(self, rank: int, time_ns: int) -> None:
        """Add a replica that this rank, which gathers, has lost."""
        self._pending.append({"lost": rank, "time_ns": time_ns})

    def record_dropped(self, parts: int) -> None:
        """Add how many parts of replicas came too late for any sum. Call it once, at the rank that gathers."""
        self._pending.append({"dropped": parts})

    def record_joined(self, iteration: int, time_ns: int) -> None:
        """Add that this rank has joined a training under way. Call it once, first of all."""
        self._pending.append({"joined": iteration, "time_ns": time_ns})

    def record_device(self, record: DeviceRecord) -> None:
        """Add the device's record. Call it once."""
        self._pending.append({"device": asdict(record)})

    def record_swapping(self, record: SwappingRecord) -> None:
        """Add what the rank's swapping took. Call it once."""
        self._pending.append({"swapping": asdict(record)})

    def flush(self) -> None:
        """Write all collected entries to the kernel, so that they survive the death of this process."""
        pending, self._pending = self._pending, []
        self._write(pending)

    def complete(self) -> None:
        """Flush, mark the log complete, and close it."""
        self.flush()
        self._write([{"complete": True}])
        self._file.close()

    def _write(self, lines: Iterable[object]) -> None:
        self._file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        self._file.flush()


def read_span_log(path: Path) -> SpanLogContents:
    """Read a log, complete or cut off. Raise SpanLogError, one line, if the file is not a span log of this version."""
    with naming(path):
        lines = regular_file(path).read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        header = _parsed(lines[0])
        version = header.pop("version")
        owner = from_document(RankPlace, header)
    except (*_NOT_AS_WRITTEN, KeyError, AttributeError):
        raise SpanLogError(f"{path}: not a span log, its first line is no header") from None
    if version != SPAN_LOG_VERSION:
        raise SpanLogError(f"{path}: span log version {shown(version)}, this program reads {SPAN_LOG_VERSION}")
    entries = _Entries()
    partial_line = lines.pop()
    for number, line in enumerate(lines[1:], start=2):
        try:
            entries.add(_parsed(line))
        except _NOT_AS_WRITTEN:
            raise SpanLogError(
                f"{path}: line {number} is neither a span nor a loss nor a device nor the closing line"
            ) from None
    return SpanLogContents(
        owner,
        tuple(entries.spans),
        entries.complete and not partial_line,
        tuple(entries.losses),
        entries.device,
        tuple(entries.sums),
        tuple(entries.lost),
        entries.dropped,
        entries.joined,
        entries.swapping,
    )


_NOT_AS_WRITTEN = (ValueError, TypeError, RecursionError)
"""Raised by Python and by ``_Entries`` for a line that is not as ranks write them."""
_NUMBERS_BELOW = 2**63
_SPANS_OF_TYPES = frozenset(product(*(get_args(each) or (each,) for each in Span.__annotations__.values())))


@dataclass
class _Entries:
    """The entries of a log, checked one by one."""

    spans: list[Span] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    sums: list[GatheredSum] = field(default_factory=list)
    lost: list[LostReplica] = field(default_factory=list)
    device: DeviceRecord | None = None
    dropped: int = 0
    joined: JoinedTraining | None = None
    swapping: SwappingRecord | None = None
    complete: bool = False

    def add(self, entry: Any) -> None:
        """Add what one line says. Raise one of ``_NOT_AS_WRITTEN`` if it is none of what ranks log."""
        if isinstance(entry, list):
            self.spans.append(_span(entry))
            return
        match dict(entry):
            case {"complete": True, **more} if not more:
                self.complete = True
            case {"iteration": int(iteration), "loss": int() | float() as loss, **more} if not more:
                self.losses.append((iteration, loss))
            case {"sum": number, "ranks": ranks, "late": late, **more} if not more:
                self.sums.append(from_document(GatheredSum, {"number": number, "ranks": ranks, "late": late}))
            case {"lost": rank, "time_ns": time_ns, **more} if not more:
                self.lost.append(from_document(LostReplica, {"rank": rank, "time_ns": time_ns}))
            case {"joined": iteration, "time_ns": time_ns, **more} if not more:
                self.joined = from_document(JoinedTraining, {"iteration": iteration, "time_ns": time_ns})
            case {"dropped": int(dropped), **more} if not more:
                self.dropped = dropped
            case {"device": device, **more} if not more:
                self.device = from_document(DeviceRecord, device)
            case {"swapping": swapping, **more} if not more:
                self.swapping = from_document(SwappingRecord, swapping)
            case _:
                raise ValueError


def _span(entry: list[Any]) -> Span:
    span = Span(*entry)
    if tuple(map(type, span)) not in _SPANS_OF_TYPES:
        raise TypeError
    return span


def _number(text: str) -> int:
    number = int(text)
    if not -_NUMBERS_BELOW <= number < _NUMBERS_BELOW:
        raise ValueError
    return number


_parsed = json.JSONDecoder(parse_int=_number).decode
