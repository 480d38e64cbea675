"""Find when the device computed, and whether it was forward, backward or an optimizer's step."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .optimizer_steps import Step
from .trace import Event

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

_ORDER = (OPTIMIZER, BACKWARD, FORWARD)

_GPU_GAP_NS, _CPU_GAP_NS = 20_000, 200_000
"""Shorter gaps do not end a stretch. On the CPU, Python computes between operators, and threads are exchanged."""

_IN_BACKWARD = ("autograd::engine::evaluate_function", "torch.distributed.ddp.reducer::", "torch::distributed::reducer")
_WAITS = ("c10d::", "_c10d_functional::", "record_param_comms")
_COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
_COMMUNICATION_KERNELS = ("nccl",)
_LAUNCHES = ("cuda_runtime", "cuda_driver")


class Stretch(NamedTuple):
    """Time in which the device computed without a pause worth mentioning. Nanoseconds."""

    kind: str
    start_ns: int
    end_ns: int


def cpu_busy(events: Iterable[Event], steps: Iterable[Step]) -> list[Stretch]:
    """Return when some thread of the process computed an operator.

    Counted are the operators of ATen as a whole, compiled regions, and others that call no operator: one that calls
    some, such as a node of the backward pass, may spend the rest of its time waiting. Calls of collectives are not
    computation, and neither is what follows them until the next operator.
    """
    windows = _Windows(events := list(events), steps)
    threads: dict[object, list[Event]] = defaultdict(list)
    for each in events:
        if each.category == "cpu_op":
            threads[each.thread].append(each)
    busy: dict[str, list[tuple[int, int]]] = defaultdict(list)
    calls: list[int] = []
    for operators in threads.values():
        operators.sort(key=lambda event: (event.start_ns, -event.end_ns))
        waits = _union((each.start_ns, each.end_ns) for each in operators if each.name.startswith(_WAITS))
        calls += (start_ns for start_ns, _ in waits)
        computed: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for each, following in zip(operators, [*operators[1:], None]):
            is_leaf = following is None or following.start_ns >= each.end_ns
            if each.name.startswith(("aten::", *_COMPILED)) or (is_leaf and not each.name.startswith(_WAITS)):
                computed[windows.kind_of(each.thread, each.start_ns)].append((each.start_ns, each.end_ns))
        for kind, intervals in computed.items():
            busy[kind] += _without(_union(intervals), waits)
    return _stretches(busy, _CPU_GAP_NS, sorted(calls))


def gpu_busy(events: Iterable[Event], steps: Iterable[Step]) -> list[Stretch]:
    """Return when the device ran a kernel that is not NCCL's. A kernel is of the kind of the code that launched it."""
    windows = _Windows(events := list(events), steps)
    launches = {each.arguments.get("correlation"): each for each in events if each.category in _LAUNCHES}
    busy: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in events:
        if each.category == "kernel" and not each.name.lower().startswith(_COMMUNICATION_KERNELS):
            launch = launches.get(each.arguments.get("correlation"))
            kind = FORWARD if launch is None else windows.kind_of(launch.thread, launch.start_ns)
            busy[kind].append((each.start_ns, each.end_ns))
    return _stretches(busy, _GPU_GAP_NS, [])


def cut(stretches: Iterable[Stretch], iterations: Sequence[tuple[int, int, int]]) -> list[tuple[int, Stretch]]:
    """Return the parts that lie in iterations, each with the number of its own. ``iterations``: number, start, end."""
    parts = []
    for each in stretches:
        for number, start_ns, end_ns in iterations:
            begin_ns, until_ns = max(start_ns, each.start_ns), min(end_ns, each.end_ns)
            if begin_ns < until_ns:
                parts.append((number, Stretch(each.kind, begin_ns, until_ns)))
    return parts


class _Windows:
    """The phase of each thread at any time: the backward pass, an optimizer's step or neither. The innermost counts."""

    def __init__(self, events: Iterable[Event], steps: Iterable[Step]) -> None:
        windows: dict[object, list[tuple[int, int, str]]] = defaultdict(list)
        for each in events:
            if each.category == "cpu_op" and each.name.startswith(_IN_BACKWARD):
                windows[each.thread].append((each.start_ns, each.end_ns, BACKWARD))
        for step in steps:
            windows[step.thread].append((step.start_ns, step.end_ns, OPTIMIZER))
        self._changes = {thread: _changes(of_thread) for thread, of_thread in windows.items()}

    def kind_of(self, thread: object, at_ns: int) -> str:
        """Return the kind of what the thread began at that time."""
        times, kinds = self._changes.get(thread, ((), ()))
        place = bisect_right(times, at_ns)
        return kinds[place - 1] if place else FORWARD


def _changes(windows: list[tuple[int, int, str]]) -> tuple[list[int], list[str]]:
    """Return the times at which the innermost window changes, and the kind from each of them on."""
    times: list[int] = []
    kinds: list[str] = []
    inside: list[tuple[int, str]] = []

    def leave_until(time_ns: float) -> None:
        while inside and inside[-1][0] <= time_ns:
            end_ns, _ = inside.pop()
            times.append(max(end_ns, times[-1]))
            kinds.append(inside[-1][1] if inside else FORWARD)

    for start_ns, end_ns, kind in sorted(windows, key=lambda window: (window[0], -window[1])):
        leave_until(start_ns)
        times.append(max(start_ns, times[-1]) if times else start_ns)
        kinds.append(kind)
        inside.append((end_ns, kind))
    leave_until(math.inf)
    return times, kinds


def _stretches(busy: Mapping[str, Iterable[tuple[int, int]]], gap_ns: int, calls: Sequence[int]) -> list[Stretch]:
    """Return one kind for each moment, the first of ``_ORDER`` that was computed, with gaps below ``gap_ns`` closed.

    ``calls`` are when collectives were called, in order. A gap with one of them is a wait and stays open.
    """
    changes = sorted(
        (time_ns, step, kind)
        for kind, intervals in busy.items()
        for start_ns, end_ns in intervals
        for time_ns, step in ((start_ns, 1), (end_ns, -1))
    )
    running = dict.fromkeys(_ORDER, 0)
    stretches: list[Stretch] = []
    for (time_ns, step, kind), following in zip(changes, changes[1:]):
        running[kind] += step
        current = next((each for each in _ORDER if running[each]), None)
        if current is None or following[0] == time_ns:
            continue
        last = stretches[-1] if stretches else None
        if (
            last is not None
            and last.kind == current
            and time_ns - last.end_ns < gap_ns
            and bisect_left(calls, last.end_ns) == bisect_left(calls, time_ns)
        ):
            stretches[-1] = last._replace(end_ns=following[0])
        else:
            stretches.append(Stretch(current, time_ns, following[0]))
    return stretches


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same time as separate intervals in order."""
    merged: list[tuple[int, int]] = []
    for start_ns, end_ns in sorted(intervals):
        if merged and start_ns <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end_ns)
        else:
            merged.append((start_ns, end_ns))
    return merged


def _without(intervals: Iterable[tuple[int, int]], removed: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what is left of the intervals. Both are separate and in order."""
    begin = 0
    for start_ns, end_ns in intervals:
        while begin < len(removed) and removed[begin][1] <= start_ns:
            begin += 1
        reached_ns, place = start_ns, begin
        while place < len(removed) and removed[place][0] < end_ns:
            if reached_ns < removed[place][0]:
                yield reached_ns, removed[place][0]
            reached_ns = max(reached_ns, removed[place][1])
            place += 1
        if reached_ns < end_ns:
            yield reached_ns, end_ns
