"""Find the collectives, and what is sent and received, in torch's profile of Gloo and NCCL."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .trace import Event, Trace

_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "barrier": "barrier",
    "send": "send",
    "recv": "receive",
}
"""By torch's names without underscores and what follows in some (``_allgather_base``, ``all_gather_into_tensor``)."""

_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "longint", "long", "int64", "uint64", "complex<float>", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "uint32", "unsignedint", "complex<half>", "complexhalf"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "shortint", "uint16", "unsignedshort"), 2),
    **dict.fromkeys(("complex<double>", "complexdouble"), 16),
}
"""By the names of C++ and of torch, in lower case without spaces and ``c10::``; every other type has one byte."""

_GLOO = "gloo:"

_Signature = tuple[str, tuple[tuple[int, ...], ...]]
"""The facts of an operation at its launch and at its event: the name and the sizes of the input."""


class Collective(NamedTuple):
    """One operation. ``launched_ns`` is when the program asked for it, on CLOCK_MONOTONIC as the others.

    ``ranks`` is the process group, like "0,1,2", "" if it is not known; ``peer`` the rank at the other end of a send
    or receive, negative if there is none or it is not known.
    """

    kind: str
    launched_ns: int
    start_ns: int
    end_ns: int
    size_bytes: int
    ranks: str
    peer: int = -1


class Launch(NamedTuple):
    """The entry of torch's flight recorder for one collective: its name, the sizes of its input, its process group."""

    name: str
    sizes: tuple[tuple[int, ...], ...]
    group: str
    launched_ns: int


def read_flight_recorder(text: str, monotonic_less_real_ns: int) -> list[Launch]:
    """Return the collectives of Gloo in the order in which they were launched, the same on all ranks of a group."""
    return [
        Launch(
            entry["profiling_name"],
            tuple(tuple(each) for each in entry["input_sizes"]),
            str(entry["process_group"][0]),
            entry["time_created_ns"] + monotonic_less_real_ns,
        )
        for entry in json.loads(text).get("entries", [])
        if entry["profiling_name"].startswith(_GLOO)
    ]


def find_collectives(trace: Trace, launches: Sequence[Launch]) -> list[Collective]:
    """Return all operations in the order in which the program launched them.

    One lasts from its first step, which may have to wait for others to end, to its last: a collective of Gloo on the
    thread that carries it out, one of NCCL as its kernel. A point-to-point operation of Gloo lasts from the call to the
    moment at which the program knew that it was done.
    """
    found = [*_gloo_collectives(trace, launches), *_gloo_point_to_point(trace), *_nccl(trace)]
    found.sort(key=lambda each: each.launched_ns)
    # Of two that one thread each takes from a queue, the later may seem to start first.
    earliest_ns: dict[tuple[str, str], int] = {}
    for place in reversed(range(len(found))):
        each = found[place]
        start_ns = min(each.start_ns, earliest_ns.get((each.kind, each.ranks), each.start_ns))
        earliest_ns[each.kind, each.ranks] = start_ns
        found[place] = each._replace(start_ns=start_ns)
    return found


def kind_of(name: str) -> str:
    """Return the kind of span for torch's name of an operation."""
    plain = name.lower().replace("_", "")
    return next((kind for known, kind in _KINDS.items() if plain.startswith(known)), "collective")


def _gloo_collectives(trace: Trace, launches: Sequence[Launch]) -> Iterator[Collective]:
    """Find the launch of each event. A group carries its operations out in the order of their launches.

    Threads of a group may overtake each other, and of operations that are alike nothing tells which event is whose. So
    the first of them gets the first start and the first end: then none ends on one rank before it begins on another.
    An event without a launch, of a torch that keeps none, is of the only group if there is one.
    """
    events = [
        each
        for each in trace.events
        if each.name.startswith(_GLOO) and kind_of(each.name[len(_GLOO) :]) not in ("send", "receive")
    ]
    group_of = groups_of_threads(events, launches)
    waiting: dict[tuple[str | None, _Signature], deque[Launch]] = defaultdict(deque)
    for launch in launches:
        waiting[launch.group, (launch.name, launch.sizes)].append(launch)
    alike: dict[tuple[str | None, _Signature], list[Event]] = defaultdict(list)
    for each in events:
        alike[group_of.get(each.thread), _signature(each)].append(each)
    only = next(iter(trace.groups.values())) if len(trace.groups) == 1 else ()
    for key, same in alike.items():
        ranks = only if key[0] is None else trace.groups.get(key[0], ())
        for each, end_ns in zip(same, sorted(event.end_ns for event in same)):
            launched_ns = waiting[key].popleft().launched_ns if waiting[key] else each.start_ns
            yield _gloo_collective(each._replace(end_ns=end_ns), launched_ns, ranks)


def groups_of_threads(events: Iterable[Event], launches: Iterable[Launch]) -> dict[object, str]:
    """Return which process group each of Gloo's threads works for, which torch does not say.

    The events of a group's threads together are among its launches. Where that leaves a choice, the threads of a group
    have been created before those of a later one. If nothing fits, because launches are missing, return nothing.
    """
    done: dict[object, Counter[_Signature]] = defaultdict(Counter)
    for each in events:
        done[each.thread][_signature(each)] += 1
    launched: dict[str, Counter[_Signature]] = defaultdict(Counter)
    for launch in launches:
        launched[launch.group][launch.name, launch.sizes] += 1
    threads = sorted(done, key=lambda thread: (str(type(thread)), thread))
    groups = list(launched)
    groups.sort(key=lambda name: (len(name), name))
    chosen: list[str] = []

    def choose_from(thread: int, previous: int) -> bool:
        if thread == len(threads):
            return True
        needed = done[threads[thread]]
        for place in sorted(range(len(groups)), key=lambda place: (place < previous, place)):
            left = launched[groups[place]]
            if any(left[signature] < count for signature, count in needed.items()):
                continue
            left.subtract(needed)
            chosen.append(groups[place])
            if choose_from(thread + 1, place):
                return True
            chosen.pop()
            left.update(needed)
        return False

    return dict(zip(threads, chosen)) if choose_from(0, 0) else {}


def _gloo_collective(event: Event, launched_ns: int, group: Sequence[int]) -> Collective:
    ranks = ",".join(map(str, group))
    kind = kind_of(event.name[len(_GLOO) :])
    return Collective(kind, min(launched_ns, event.start_ns), event.start_ns, event.end_ns, _input_bytes(event), ranks)


def _gloo_point_to_point(trace: Trace) -> Iterator[Collective]:
    """Pair the calls on each thread with the operations: the call knows the peer, the operation type and end."""
    calls: dict[tuple[object, str], list[Event]] = defaultdict(list)
    only_group = len(set(trace.groups.values())) == 1
    for each in trace.events:
        if each.name in ("c10d::send", "c10d::recv_"):
            calls[each.thread, each.name[6:10]].append(each)
        elif each.name in ("gloo:send", "gloo:recv"):
            waiting = calls[each.thread, each.name[5:]]
            call = waiting.pop(0) if waiting else None
            # The peer is a number within the group, which torch does not name.
            peer = int(call.arguments["Concrete Inputs"][2]) if call is not None and only_group else -1
            start_ns = each.start_ns if call is None else call.start_ns
            kind = kind_of(each.name[len(_GLOO) :])
            yield Collective(kind, start_ns, start_ns, each.end_ns, _input_bytes(each), "", peer)


def _nccl(trace: Trace) -> Iterator[Collective]:
    launches = {
        each.arguments.get("correlation"): each.start_ns for each in trace.events if each.category.startswith("cuda_")
    }
    for each in trace.events:
        name = each.arguments.get("Collective name")
        if each.category != "kernel" or name is None:
            continue
        kind = kind_of(str(name).strip("_"))
        point_to_point = kind in ("send", "receive")
        size_bytes = int(each.arguments.get("In msg nelems", 0)) * _element_bytes(str(each.arguments.get("dtype", "")))
        launched_ns = launches.get(each.arguments.get("correlation"), each.start_ns)
        peer = int(each.arguments.get("Dst Rank" if kind == "send" else "Src Rank", -1)) if point_to_point else -1
        ranks = "" if point_to_point else _nccl_ranks(each.arguments, trace)
        yield Collective(kind, launched_ns, each.start_ns, each.end_ns, size_bytes, ranks, peer)


def _nccl_ranks(arguments: dict[str, Any], trace: Trace) -> str:
    group = trace.groups.get(str(arguments.get("Process Group Name")))
    if group:
        return ",".join(map(str, group))
    written = str(arguments.get("Process Group Ranks", ""))
    # torch shortens the list of a large group.
    return "" if "..." in written else written.strip("[]").replace(" ", "")


def _input_bytes(event: Event) -> int:
    types = event.arguments.get("Input type", [])
    return sum(_elements(sizes) * _element_bytes(name) for sizes, name in zip(_dimensions(event), types))


def _signature(event: Event) -> _Signature:
    return event.name, _dimensions(event)


def _dimensions(event: Event) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in event.arguments.get("Input Dims", []))


def _elements(sizes: Iterable[int]) -> int:
    count = 1
    for each in sizes:
        count *= each
    return count


def _element_bytes(name: str) -> int:
    return _ELEMENT_BYTES.get(name.replace("c10::", "").replace(" ", "").lower(), 1)
