"""Write one iteration of one trial as a Chakra execution trace: a folder with one file for each rank.

A span has times, and a trace dependencies. A rank asks its schedule for work when its GPU has become idle or a message
has arrived. So every computation depends on the one before it on its GPU, and on what had arrived last if the GPU was
idle until then. It also depends on the message that it takes. Waiting is in no node: dependencies bring it about again.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wanbed.ground.errors import InputError
from wanbed.ground.files import written_whole
from wanbed.results.chakra.node import (
    DURATION_NS,
    KIND,
    MICROBATCH,
    AttributeValue,
    ChakraNode,
    CollectiveType,
    NodeType,
)
from wanbed.results.chakra.rank_file import rank_bytes
from wanbed.results.reading.selection import NoSuchTrialError, Selection, choices, finished_trials, swept_points
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.schema import VIRTUAL_STAGE
from wanbed.results.records.span_log import (
    ACTIVATION,
    COLLECTIVE_KINDS,
    COMPUTE_KINDS,
    GRADIENT,
    ITERATION,
    NO_MICROBATCH,
    NORM,
    message_ranks,
)
from wanbed.results.records.trial_files import read_trial_table
from wanbed.results.records.trial_tables import SPANS_FILE

EXPORTED_KINDS = (*COMPUTE_KINDS, *COLLECTIVE_KINDS, "send", "receive")
"""The kinds of spans that become nodes. Neither prefill nor what states an iteration is work of training."""


@dataclass(frozen=True, order=True)
class TrialSpan:
    """One span of the iteration. The fields are those of the table of spans; they sort by time."""

    start_ns: int
    end_ns: int
    rank: int
    kind: str
    microbatch: int
    size_bytes: int
    pipeline: int
    stage: int
    host: str
    datacenter: str
    peer: str
    tensor: str


_COLUMNS = [each.name for each in fields(TrialSpan)]


@dataclass(frozen=True)
class TrialIteration:
    """One iteration of one trial. ``is_program`` is whether its ranks were a user's program.

    ``stated_ns`` has the begin and the end of the iteration at each rank that states them, as those of programs do.
    """

    trial: StoredTrial
    iteration: int
    spans: tuple[TrialSpan, ...]
    stated_ns: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        """Tell whether the ranks were processes of a user's program, which logs when its device was busy."""
        return "program" in self.trial.facts


def chosen_iteration(run: Path, selection: Selection) -> TrialIteration:
    """Return the selected iteration of the only selected trial; by default its first measured one.

    Of a program it is the first one that was profiled. Raise RunError if the run is damaged, NoTrialsError if no trial
    has finished, NoSuchTrialError if there is none such, and InputError if several trials are selected.
    """
    manifest, finished = finished_trials(run)
    trials = selection.of(finished, swept_points(manifest))
    if len(trials) > 1:
        raise InputError(
            f"{run}: --format chakra writes one trial, and {len(trials)} are selected: give {_choice(trials)}"
        )
    (trial,) = trials
    table: Any = read_trial_table(trial.folder, trial.id, SPANS_FILE)
    if VIRTUAL_STAGE in table.column_names:
        raise InputError(
            f"{trial.title}: its stages are divided into virtual stages, which --format chakra does not know: select a "
            "trial without them, or another --format"
        )
    if trial.sync_every is not None:
        raise InputError(
            f"{trial.title}: its replicas synchronise beside several iterations, which --format chakra does not know: "
            "select a trial that sums gradients in each, or another --format"
        )
    if NORM in set(table.column("kind").to_pylist()):
        raise InputError(
            f"{trial.title}: its optimizer steps wait for a gradient norm of all ranks, which --format chakra does not "
            "know: select a trial with optimizer_waits: own, or another --format"
        )
    exported = table.filter(pc.is_in(table.column("kind"), value_set=pa.array(EXPORTED_KINDS)))
    iteration = _iteration(trial, exported, selection.iteration)
    own = table.filter(pc.equal(table.column("iteration"), pa.scalar(iteration)))
    rows = [TrialSpan(**row) for row in own.select(_COLUMNS).to_pylist()]
    spans = sorted(row for row in rows if row.kind in EXPORTED_KINDS)
    stated_ns = {row.rank: (row.start_ns, row.end_ns) for row in rows if row.kind == ITERATION}
    return TrialIteration(trial, iteration, tuple(spans), stated_ns)


def _iteration(trial: StoredTrial, spans: Any, selected: int | None) -> int:
    """Return the selected iteration, or the first measured one; of a program the first one that was profiled."""
    computed = spans.filter(pc.is_in(spans.column("kind"), value_set=pa.array(COMPUTE_KINDS)))
    there = sorted(set(computed.column("iteration").to_pylist()))
    if selected is not None:
        if selected not in there:
            raise NoSuchTrialError(f"--iteration {selected}: there is none such that computes, {choices(there)}")
        return selected
    profiled = int(trial.facts.get("profiled_iterations") or 0)
    first = max(there, default=0) + 1 - profiled if profiled else trial.warmup_iterations
    measured = [iteration for iteration in there if iteration >= first]
    if not measured:
        raise NoSuchTrialError(f"{trial.title}: no measured iteration of it computes, {choices(there)}")
    return int(measured[0])


def _choice(trials: Sequence[StoredTrial]) -> str:
    """Return the options that tell the trials apart, each with what there is to choose."""
    options: dict[str, list[str] | list[int]] = {
        "--variant": [trial.variant for trial in trials],
        "--point": [trial.point for trial in trials],
        "--repeat": [trial.repeat for trial in trials],
    }
    several = {option: values for option, values in options.items() if len(set(values)) > 1}
    return ", ".join(f"{option} ({choices(values)})" for option, values in several.items())


HOST = "host"
"""The name of work that a program does on the CPU while its GPU is idle."""

_COLLECTIVE_TYPES = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "broadcast": CollectiveType.BROADCAST,
    "all_to_all": CollectiveType.ALL_TO_ALL,
    "barrier": CollectiveType.BARRIER,
}

_MAKES = {ACTIVATION: ("forward",), GRADIENT: ("backward", "backward_input")}
"""The computations that make what is sent, and take what is received."""


@dataclass
class _Draft:
    """A node under construction. Dependencies are positions in the rank's list of drafts."""

    span: TrialSpan
    kind: str
    control: set[int] = field(default_factory=set)
    data: set[int] = field(default_factory=set)


def trial_nodes(chosen: TrialIteration) -> dict[int, list[ChakraNode]]:
    """Return the nodes of every rank. Raise InputError for a span that has no place in a trace."""
    by_rank: dict[int, list[TrialSpan]] = defaultdict(list)
    for span in chosen.spans:
        by_rank[span.rank].append(span)
    begins_ns = [begin_ns for begin_ns, _ in chosen.stated_ns.values()]
    begin_ns = min((*begins_ns, *(span.start_ns for span in chosen.spans)), default=0)
    places = _Places(chosen.spans)
    found = {}
    for rank, own in sorted(by_rank.items()):
        stated_ns = chosen.stated_ns.get(rank, (begin_ns, max(span.end_ns for span in own)))
        found[rank] = _rank_nodes(own, places, begin_ns, stated_ns if chosen.is_program else None)
    return found


class _Places:
    """The ranks at the places that spans name."""

    def __init__(self, spans: Iterable[TrialSpan]) -> None:
        self._by_stage: dict[tuple[int, int], TrialSpan] = {}
        self._by_host: dict[str, set[int]] = defaultdict(set)
        self._of_stage: dict[int, set[int]] = defaultdict(set)
        for span in spans:
            self._by_stage[span.pipeline, span.stage] = span
            self._by_host[span.host].add(span.rank)
            self._of_stage[span.stage].add(span.rank)

    def peer(self, span: TrialSpan) -> int:
        """Return the rank at the other end of a send or receive."""
        if span.tensor in {ACTIVATION, GRADIENT}:
            step = 1 if (span.tensor == ACTIVATION) == (span.kind == "send") else -1
            peer = self._by_stage.get((span.pipeline, span.stage + step))
            if peer is not None and peer.host == span.peer:
                return peer.rank
        ends = message_ranks(span.kind, span.tensor)
        if ends is not None:
            return ends[span.kind == "send"]
        if not span.peer:
            raise InputError(
                f"rank {span.rank}: a {span.kind} at {span.start_ns / 1e9:.6f} s: to or from which rank it goes is not "
                "recorded, as of programs with several process groups: such a program makes no Chakra trace"
            )
        on_host = self._by_host.get(span.peer, set())
        if len(on_host) != 1:
            raise InputError(
                f"rank {span.rank}: a {span.kind} at {span.start_ns / 1e9:.6f} s names the host {span.peer!r}, on "
                f"which {len(on_host)} ranks run: a trace needs the rank: run one rank a host"
            )
        return next(iter(on_host))

    def group(self, span: TrialSpan) -> str:
        """Return the name of a collective's group: its ranks, like ``0,2``."""
        return span.tensor or ",".join(map(str, sorted(self._of_stage[span.stage])))


def _rank_nodes(
    spans: Sequence[TrialSpan], places: _Places, begin_ns: int, stated_ns: tuple[int, int] | None
) -> list[ChakraNode]:
    drafts = [_Draft(span, span.kind) for span in _cut_at_collectives(spans)]
    computed = _Computations(drafts)
    _order_computations(drafts, computed)
    _order_collectives(drafts, computed)
    _attach_messages(drafts, computed)
    if stated_ns is not None:
        drafts = _with_host_time(drafts, *stated_ns)
    messages: Counter[tuple[str, int]] = Counter()
    return [_node(number, draft, places, begin_ns, messages) for number, draft in enumerate(drafts)]


def _cut_at_collectives(spans: Sequence[TrialSpan]) -> list[TrialSpan]:
    """Cut computations where a collective begins, which waits for the part before it and not for the one after it."""
    cuts = sorted(span.start_ns for span in spans if span.kind in COLLECTIVE_KINDS)
    pieces: list[TrialSpan] = []
    for span in spans:
        inside = [cut_ns for cut_ns in cuts if span.start_ns < cut_ns < span.end_ns]
        edges = [span.start_ns, *(inside if span.kind in COMPUTE_KINDS else ()), span.end_ns]
        pieces += [replace(span, start_ns=start_ns, end_ns=end_ns) for start_ns, end_ns in pairwise(edges)]
    return sorted(pieces, key=lambda span: (span.start_ns, span.kind not in COMPUTE_KINDS, span.end_ns))


class _Computations:
    """The computations of one rank, which follow one another on its GPU."""

    def __init__(self, drafts: Sequence[_Draft]) -> None:
        self.numbers = [number for number, draft in enumerate(drafts) if draft.kind in COMPUTE_KINDS]
        self._ends_ns = [drafts[number].span.end_ns for number in self.numbers]
        keys = [(drafts[number].kind, drafts[number].span.microbatch) for number in self.numbers]
        # Of a computation that is cut, the first part takes a message and the last part makes one.
        self._takes = dict(zip(reversed(keys), reversed(self.numbers), strict=True))
        self._makes = dict(zip(keys, self.numbers, strict=True))

    def ended_by(self, time_ns: int) -> int | None:
        """Return the last one that had ended at that time."""
        ended = bisect_right(self._ends_ns, time_ns)
        return self.numbers[ended - 1] if ended else None

    def of(self, span: TrialSpan) -> int | None:
        """Return the computation whose result a send carries, or that uses a received message; None for none."""
        if span.microbatch == NO_MICROBATCH:
            return None
        numbers = self._takes if span.kind == "receive" else self._makes
        of_tensor = (numbers.get((kind, span.microbatch)) for kind in _MAKES.get(span.tensor, ()))
        return next((number for number in of_tensor if number is not None), None)


def _order_computations(drafts: Sequence[_Draft], computed: _Computations) -> None:
    """Let each computation follow the one before it, and what had arrived last if the GPU was idle until then."""
    arrivals = sorted(
        (draft.span.end_ns, number)
        for number, draft in enumerate(drafts)
        if draft.kind == "receive" or draft.kind in COLLECTIVE_KINDS
    )
    for before, number in pairwise(computed.numbers):
        draft = drafts[number]
        draft.control.add(before)
        arrived = bisect_right(arrivals, (draft.span.start_ns, len(drafts)))
        if arrived and arrivals[arrived - 1][0] > drafts[before].span.end_ns:
            draft.control.add(arrivals[arrived - 1][1])
    for number in computed.numbers:
        if drafts[number].kind == "optimizer":
            # It changes the weights that all-reduces sum up, and waits until the memory of what is sent is free.
            drafts[number].control |= {
                other
                for other, earlier in enumerate(drafts)
                if (earlier.kind == "send" or earlier.kind in COLLECTIVE_KINDS)
                and earlier.span.end_ns <= drafts[number].span.start_ns
            }


def _order_collectives(drafts: Sequence[_Draft], computed: _Computations) -> None:
    """Let each collective follow the last computation before it, and the one before it in its group."""
    before: dict[str, int] = {}
    for number, draft in enumerate(drafts):
        if draft.kind in COLLECTIVE_KINDS:
            follows = computed.ended_by(draft.span.start_ns)
            draft.data |= set() if follows is None else {follows}
            if draft.span.tensor in before:
                draft.control.add(before[draft.span.tensor])
            before[draft.span.tensor] = number


def _attach_messages(drafts: Sequence[_Draft], computed: _Computations) -> None:
    """Let each send follow what makes its message, and what takes a message follow its receive."""
    gradients: dict[int, int] = {}
    for number, draft in enumerate(drafts):
        user = computed.of(draft.span)
        if draft.kind == "send":
            maker = computed.ended_by(draft.span.start_ns) if user is None else user
            draft.data |= set() if maker is None else {maker}
        elif draft.kind == "receive" and user is not None:
            drafts[user].data.add(number)
            if draft.span.tensor == GRADIENT:
                gradients[draft.span.microbatch] = number
    again = [draft for draft in drafts if draft.kind == "recompute" and draft.span.microbatch in gradients]
    if all(drafts[gradients[each.span.microbatch]].span.end_ns <= each.span.start_ns for each in again):
        # None ran ahead, so the schedule makes them wait.
        for each in again:
            each.data.add(gradients[each.span.microbatch])


def _with_host_time(drafts: list[_Draft], begin_ns: int, end_ns: int) -> list[_Draft]:
    """Add the time that passed on the host, before each computation and collective and after the last, as CPU work.

    The host does one thing after the other from the begin of the iteration to its end, so that no time counts twice.
    """
    found = list(drafts)
    host_ns, last = begin_ns, set[int]()

    def add(after: set[int], until_ns: int, like: TrialSpan) -> set[int]:
        """Add the host's time until then, unless what comes before has taken it. Return what to follow."""
        nonlocal host_ns, last
        free_ns = max((found[number].span.end_ns for number in after), default=begin_ns)
        if until_ns <= free_ns:
            return after
        if free_ns <= host_ns:
            free_ns, after = host_ns, after | last
        if free_ns < until_ns:
            span = replace(like, kind=HOST, start_ns=free_ns, end_ns=until_ns, microbatch=NO_MICROBATCH)
            found.append(_Draft(span, HOST, control=after))
            host_ns, last = until_ns, {len(found) - 1}
        return last

    for draft in drafts:
        if draft.kind != "receive":
            draft.control |= add(draft.control | draft.data, draft.span.start_ns, draft.span)
    followed = set[int]().union(*(draft.control | draft.data for draft in found))
    add(set(range(len(found))) - followed, end_ns, drafts[-1].span)
    return found


def _node(number: int, draft: _Draft, places: _Places, begin_ns: int, messages: Counter[tuple[str, int]]) -> ChakraNode:
    span = draft.span
    name, duration_ns = draft.kind, 0
    attributes: dict[str, AttributeValue] = {"is_cpu_op": draft.kind == HOST}
    if draft.kind in {"send", "receive"}:
        peer = places.peer(span)
        ends = (span.rank, peer) if draft.kind == "send" else (peer, span.rank)
        tag = span.microbatch
        if span.tensor not in _MAKES or span.microbatch == NO_MICROBATCH:
            tag = messages[draft.kind, peer]
            messages[draft.kind, peer] += 1
        kind = NodeType.COMM_SEND_NODE if draft.kind == "send" else NodeType.COMM_RECV_NODE
        name = f"{draft.kind} {span.tensor}" if span.tensor in _MAKES else draft.kind
        attributes |= {"comm_size": span.size_bytes, "comm_src": ends[0], "comm_dst": ends[1], "comm_tag": tag}
    elif draft.kind in COLLECTIVE_KINDS:
        kind = NodeType.COMM_COLL_NODE
        collective = _COLLECTIVE_TYPES.get(draft.kind)
        if collective is None:
            raise InputError(
                f"rank {span.rank}: a {draft.kind} at {span.start_ns / 1e9:.6f} s has no name in a Chakra trace"
            )
        attributes |= {"comm_type": collective, "comm_size": span.size_bytes, "pg_name": places.group(span)}
    else:
        kind, duration_ns = NodeType.COMP_NODE, span.end_ns - span.start_ns
        attributes |= {"num_ops": 0, "tensor_size": 0, DURATION_NS: duration_ns}
    if draft.kind != HOST:
        attributes[KIND] = draft.kind
    if span.microbatch != NO_MICROBATCH:
        name = f"{name} {span.microbatch}"
        attributes[MICROBATCH] = span.microbatch
    return ChakraNode(
        id=number,
        name=name,
        type=kind,
        control_dependencies=tuple(sorted(draft.control - draft.data)),
        data_dependencies=tuple(sorted(draft.data)),
        start_us=max(span.start_ns - begin_ns, 0) // 1000,
        duration_us=round(duration_ns / 1000),
        attributes=attributes,
    )


_SUFFIX = "et"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class ChakraCounts:
    """The trial's variant, the iteration, the datacenter of each rank, and the numbers of nodes in all files."""

    variant: str
    iteration: int
    placement: tuple[str, ...]
    computations: int
    sends: int
    receives: int
    collectives: int


def write_chakra_trace(run: Path, folder: Path, selection: Selection) -> ChakraCounts:
    """Write ``NAME.RANK.et`` for every rank into ``folder``, which is created and must not hold other traces.

    NAME is the variant's. Raises what ``chosen_iteration`` raises, and InputError for a folder with
    files of another trace.
    """
    chosen = chosen_iteration(run, selection)
    ranks = trial_nodes(chosen)
    name = _NOT_IN_NAMES.sub("-", chosen.trial.variant).strip("-") or "trace"
    wanted = {f"{name}.{rank}.{_SUFFIX}" for rank in ranks}
    folder.mkdir(parents=True, exist_ok=True)
    for other in sorted(folder.glob(f"*.{_SUFFIX}")):
        if other.name not in wanted:
            raise InputError(f"{folder}: has {other.name} of another trace: give another --output")
    for rank, nodes in ranks.items():
        with written_whole(folder / f"{name}.{rank}.{_SUFFIX}") as partial:
            partial.write_bytes(rank_bytes(nodes))
    homes = {span.rank: span.datacenter for span in chosen.spans}
    types = Counter(node.type for nodes in ranks.values() for node in nodes)
    return ChakraCounts(
        chosen.trial.variant,
        chosen.iteration,
        tuple(homes[rank] for rank in ranks),
        types[NodeType.COMP_NODE],
        types[NodeType.COMM_SEND_NODE],
        types[NodeType.COMM_RECV_NODE],
        types[NodeType.COMM_COLL_NODE],
    )
