"""Make the nodes of a Chakra trace from the spans of one iteration.

A span has times, and a trace dependencies. A rank asks its schedule for work when its GPU has become idle or a message
has arrived. So every computation depends on the one before it on its GPU, and on what had arrived last if the GPU was
idle until then. It also depends on the message that it takes. Waiting is in no node: dependencies bring it about again.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from wanbed.ground.strict_model import InputError
from wanbed.results.chakra.node import (
    DURATION_NS,
    KIND,
    MICROBATCH,
    AttributeValue,
    ChakraNode,
    CollectiveType,
    NodeType,
)
from wanbed.results.chakra.trial_spans import TrialIteration, TrialSpan
from wanbed.results.records.span_log import (
    ACTIVATION,
    COLLECTIVE_KINDS,
    COMPUTE_KINDS,
    GRADIENT,
    NO_MICROBATCH,
    message_ranks,
)

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
