"""The rules that a trace has to keep for Perfetto to show all of it, checked without the engine.

``problems(load_trace(path))`` is empty for a trace of ``wanbed trace``, whichever run it is of.
"""

import gzip
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

Event = Mapping[str, Any]
Thread = tuple[int, int]
PHASES = frozenset("XbesfCM")
TRANSFERS = ("send", "receive")
WAITING, TRANSFERRING = "waiting", "transferring"
"""The categories of slices that lie inside those of collectives."""
STAGES_ON = {"activation": 1, "gradient": -1}


class Slice(NamedTuple):
    start_ns: int
    end_ns: int
    event: Event


def load_trace(path: Path) -> dict[str, Any]:
    """A trace, compressed or not, its numbers with decimals kept as they are written."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    trace: dict[str, Any] = json.loads(text, parse_float=Decimal, parse_constant=refuse)
    return trace


def nanoseconds(microseconds: Any) -> int:
    """Raises ValueError unless it was written with three decimals."""
    if not isinstance(microseconds, Decimal) or microseconds.as_tuple().exponent != -3:
        raise ValueError(f"{microseconds!r} is not written in microseconds with three decimals")
    return int(microseconds * 1000)


def slices_of(trace: Mapping[str, Any]) -> dict[Thread, list[Slice]]:
    """The X slices of every thread, by start."""
    found: dict[Thread, list[Slice]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            start_ns = nanoseconds(event["ts"])
            own = Slice(start_ns, start_ns + nanoseconds(event["dur"]), event)
            found.setdefault((event["pid"], event["tid"]), []).append(own)
    return {thread: sorted(slices, key=lambda each: each[:2]) for thread, slices in found.items()}


def names_of(trace: Mapping[str, Any], what: str) -> dict[Any, Any]:
    """What the metadata events of a name say, by process or by process and thread."""
    of_thread = what.startswith("thread")
    return {
        (event["pid"], event["tid"]) if of_thread else event["pid"]: next(iter(event["args"].values()))
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == what
    }


def problems(trace: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a trace as ``load_trace`` gives it."""
    fields = list(_fields(trace))
    if fields:
        return fields
    slices = slices_of(trace)
    inner = {thread: [each for each in own if _is_inner(each)] for thread, own in slices.items()}
    slices = {thread: [each for each in own if not _is_inner(each)] for thread, own in slices.items()}
    return [
        *_overlaps(slices),
        *_inner(slices, inner),
        *_async_pairs(trace),
        *_arrows(trace, slices),
        *_ends_of_waits(trace, inner),
        *_counters(trace),
        *_names(trace, slices),
        *_about(trace),
        *_prefills(trace, slices),
    ]


def _fields(trace: Mapping[str, Any]) -> Iterator[str]:
    for event in trace["traceEvents"]:
        if event.get("ph") not in PHASES:
            yield f"an event of no known phase: {event}"
            continue
        numbers = ["pid"] if event["ph"] == "C" or str(event["name"]).startswith("process_") else ["pid", "tid"]
        if not all(isinstance(event.get(name), int) and 0 < event[name] < 2**32 for name in numbers):
            yield f"process and thread are no small numbers: {event}"
        if not isinstance(event["name"], str) or not event["name"]:
            yield f"without a name: {event}"
        for name in ({"M": (), "X": ("ts", "dur")}).get(event["ph"], ("ts",)):
            try:
                negative = nanoseconds(event.get(name)) < 0
            except ValueError as fault:
                yield f"{fault}: {event}"
                continue
            if negative:
                yield f"a time below zero: {event}"
        number = event.get("id2", {}).get("local") if event["ph"] in "be" else event.get("id", 0)
        if not isinstance(number, int):
            yield f"its id is no number: {event}"


def _overlaps(slices: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    for thread, own in slices.items():
        for one, other in pairwise(own):
            if other.start_ns < max(one.end_ns, one.start_ns + 1):
                yield f"two slices overlap on thread {thread}: {one.event} {other.event}"


def _is_inner(each: Slice) -> bool:
    return each.event["cat"] in {WAITING, TRANSFERRING}


def _inner(slices: Mapping[Thread, Sequence[Slice]], inner: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    """A collective that waited is divided into the wait for the rank that it names, and the rest."""
    for thread, own in inner.items():
        collectives = {each.start_ns: each for each in slices[thread]}
        rests = {each.start_ns: each for each in own if each.event["cat"] == TRANSFERRING}
        for wait in (each for each in own if each.event["cat"] == WAITING):
            around, rest = collectives.get(wait.start_ns), rests.pop(wait.end_ns, None)
            if around is None or rest is None or rest.end_ns != around.end_ns:
                yield f"a wait that does not divide a collective: {wait.event}"
            elif wait.event["name"] != f"waiting for {around.event['args']['last_to_begin']}":
                yield f"a wait for another rank than the collective's last: {wait.event} {around.event}"
            elif nanoseconds(around.event["args"]["waited_us"]) != wait.end_ns - wait.start_ns:
                yield f"a wait of another length than its collective says: {wait.event} {around.event}"
        yield from (f"a transfer of a collective without a wait: {rest.event}" for rest in rests.values())


def _async_pairs(trace: Mapping[str, Any]) -> Iterator[str]:
    opened: dict[Any, list[Event]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "be":
            stack = opened.setdefault((event["pid"], event["cat"], event["id2"]["local"]), [])
            if event["ph"] == "b":
                stack.append(event)
            elif not stack or stack[-1]["name"] != event["name"] or stack[-1]["ts"] > event["ts"]:
                yield f"an async end that closes nothing: {event}"
            else:
                stack.pop()
    yield from (f"an async begin without its end: {event}" for stack in opened.values() for event in stack)


def _enclosing(slices: Mapping[Thread, Sequence[Slice]], event: Event) -> Slice | None:
    own = slices.get((event["pid"], event["tid"]), ())
    time_ns = nanoseconds(event["ts"])
    position = bisect_right(own, time_ns, key=lambda each: each.start_ns) - 1
    found = own[position] if position >= 0 else None
    return found if found and (time_ns < found.end_ns or time_ns == found.start_ns) else None


def _arrows(trace: Mapping[str, Any], slices: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    begins: dict[Any, Event] = {}
    drawn = Counter[Any]()
    hosts = names_of(trace, "process_name")
    for event in trace["traceEvents"]:
        if event["ph"] == "s":
            if begins.setdefault((event["id"], event["cat"], event["name"]), event) is not event:
                yield f"two arrows of one id: {event}"
        elif event["ph"] == "f":
            begin = begins.pop((event["id"], event["cat"], event["name"]), None)
            if begin is None:
                yield f"an arrow that ends and never began: {event}"
                continue
            send, receive = _enclosing(slices, begin), _enclosing(slices, event)
            if event.get("bp") != "e":
                yield f"the end of an arrow does not bind to the slice around it: {event}"
            elif send is None or receive is None:
                yield f"an arrow is not inside slices: {begin} {event}"
            elif event["cat"] == "collective":
                yield from _arrow_of_collective(send, receive, begin, event, hosts)
            else:
                drawn[_transfer(send.event)] += 1
                yield from _arrow(send, receive, begin, event, hosts)
    yield from (f"an arrow that begins and never ends: {event}" for event in begins.values())
    if wanted := _matched(slices) - drawn:
        yield f"{wanted.total()} transfers have no arrow, the first is {next(iter(wanted))}"


def _ends_of_waits(trace: Mapping[str, Any], inner: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    ended = Counter((event["pid"], event["tid"], event["ts"]) for event in trace["traceEvents"] if event["ph"] == "f")
    for thread, own in inner.items():
        for each in own:
            if each.event["cat"] == TRANSFERRING and ended[*thread, each.event["ts"]] != 1:
                yield f"a wait that ends without an arrow: {each.event}"


def _arrow(send: Slice, receive: Slice, begin: Event, end: Event, hosts: Mapping[int, str]) -> Iterator[str]:
    text = f"{send.event} {receive.event}"
    if (send.event["cat"], receive.event["cat"]) != TRANSFERS:
        yield f"an arrow that is not from a send to a receive: {text}"
    elif _transfer(send.event) != _transfer(receive.event):
        yield f"an arrow to what is not what was sent: {text}"
    elif not hosts[receive.event["pid"]].endswith(f" / {send.event['args']['peer']}"):
        yield f"an arrow to a host that is not the peer: {text}"
    leaves_ns, arrives_ns = nanoseconds(begin["ts"]), nanoseconds(end["ts"])
    if receive.start_ns < send.start_ns or arrives_ns < leaves_ns:
        yield f"an arrow backwards in time: {text}"
    elif leaves_ns == send.start_ns and send.end_ns - send.start_ns > 1 and receive.start_ns > send.start_ns:
        yield f"an arrow that leaves at its slice's very start: {text}"


def _arrow_of_collective(
    last: Slice, waiting: Slice, begin: Event, end: Event, hosts: Mapping[int, str]
) -> Iterator[str]:
    text = f"{last.event} {waiting.event}"
    of_last, of_waiting = last.event["args"], waiting.event["args"]
    if last.event["cat"] != waiting.event["cat"] or any(
        of_last.get(name) != of_waiting.get(name) for name in ("iteration", "group", "last_to_begin")
    ):
        yield f"an arrow between two different collectives: {text}"
    elif f"{hosts[last.event['pid']].split(' / ')[1]}" != of_waiting["last_to_begin"].split(" on ")[1]:
        yield f"an arrow from a rank that was not the last: {text}"
    if not waiting.start_ns < last.start_ns == nanoseconds(begin["ts"]) == nanoseconds(end["ts"]) < waiting.end_ns:
        yield f"an arrow to a rank that did not wait: {text}"


def _transfer(event: Event) -> tuple[Any, ...]:
    """What tells a transfer: tensor, and pipeline, receiving stage, iteration and microbatch."""
    tensor = event["name"].split(" ")[1]
    receiver = event["args"]["stage"] + (STAGES_ON.get(tensor, 0) if event["cat"] == "send" else 0)
    about = event["args"]
    return tensor, about["pipeline"], receiver, about["iteration"], about.get("microbatch")


def _matched(slices: Mapping[Thread, Sequence[Slice]]) -> Counter[Any]:
    """How many arrows each transfer has to have, where sends and receives are in the same order; over all trials."""
    starts: dict[str, dict[Any, list[int]]] = {kind: {} for kind in TRANSFERS}
    for own in slices.values():
        for each in own:
            if each.event["cat"] in TRANSFERS and each.event["name"].split(" ")[1:2] in (["activation"], ["gradient"]):
                starts[each.event["cat"]].setdefault(_transfer(each.event), []).append(each.start_ns)
    return Counter(
        {
            transfer: sum(one <= other for one, other in zip(sorted(sends), sorted(received), strict=True))
            for transfer, sends in starts["send"].items()
            if len(received := starts["receive"].get(transfer, [])) == len(sends)
        }
    )


def _counters(trace: Mapping[str, Any]) -> Iterator[str]:
    last: dict[Any, Event] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            if not isinstance(value, int | Decimal) or value < 0:
                yield f"a counter of no amount: {event}"
            before = last.get((event["pid"], event["name"], unit))
            if before and before["ts"] >= event["ts"]:
                yield f"a counter backwards in time: {before} {event}"
            last[event["pid"], event["name"], unit] = event
    yield from (
        f"a counter that ends with something left: {event}" for event in last.values() if any(event["args"].values())
    )


def _names(trace: Mapping[str, Any], slices: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    processes = {event["pid"] for event in trace["traceEvents"]}
    for what, needed in (("process", processes), ("thread", set(slices))):
        names, positions = names_of(trace, f"{what}_name"), names_of(trace, f"{what}_sort_index")
        yield from (f"{what} {number} has no name" for number in needed - names.keys())
        yield from (f"{what} {number} has no place" for number in needed - positions.keys())
        places = {(number[0] if what == "thread" else None, position) for number, position in positions.items()}
        if len(places) < len(positions):
            yield f"several {what}es have one place"
    names, positions = names_of(trace, "process_name"), names_of(trace, "process_sort_index")
    ordered = [names[number] for number in sorted(processes & positions.keys(), key=lambda each: positions[each])]
    datacenters = [key for key, _ in groupby(name.split(" / ")[0] for name in ordered if " / " in name)]
    if len(set(datacenters)) < len(datacenters):
        yield f"hosts of one datacenter do not stand together: {ordered}"
    if len({thread for thread in slices if names.get(thread[0]) == "trials"}) != 1:
        yield "there is not one thread with the trials"


def _prefills(trace: Mapping[str, Any], slices: Mapping[Thread, Sequence[Slice]]) -> Iterator[str]:
    """A prefill says whose it is and, where the trace has requests, lies between that one's arrival and its end."""
    lives: dict[int, list[list[int]]] = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "request" and event["name"].startswith("request "):
            number, time_ns = int(event["name"].split(" ")[1]), nanoseconds(event["ts"])
            if event["args"].get("request") != number:
                yield f"a request that does not say its number: {event}"
            if event["ph"] == "b":
                lives.setdefault(number, []).append([time_ns])
            else:
                lives[number][-1].append(time_ns)
    for own in slices.values():
        for each in own:
            if each.event["cat"] != "prefill":
                continue
            number = each.event["args"].get("request", -1)
            if number < 0:
                yield f"a prefill for no request: {each.event}"
            elif lives and not any(
                begin <= each.start_ns and each.end_ns <= end for begin, end in lives.get(number, ())
            ):
                yield f"a prefill outside its request: {each.event}"


def _about(trace: Mapping[str, Any]) -> Iterator[str]:
    for field in ("run", "config_hash", "engine", "clock", "dilation", "wanbed"):
        if field not in trace.get("otherData", {}):
            yield f"otherData does not say {field}"
