"""Number, name and order the processes and threads of a trace.

Spans of one track may overlap. ``assign_lanes`` spreads them over threads on which no two overlap.
"""

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from wanbed.results.perfetto.counters import GPU, LINK, Quantity
from wanbed.results.perfetto.trial_tables import Spans
from wanbed.results.records.run_store import RunError
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import COLLECTIVE_KINDS, ITERATION, JOINT_KINDS, PREFILL


def assign_lanes(place: Column, start_ns: Column, end_ns: Column) -> Column:
    """Return a lane for every span, numbered from 0 at each place, such that spans of a lane do not overlap.

    Each span gets the lowest free lane, so that a place has only as many lanes as it has spans at the same time. A span
    of length 0 counts as 1 ns long, so that no other span on its lane starts at the same time. O(n log n).
    """
    lane = np.zeros(len(place), np.int64)
    last_ns = np.maximum(end_ns, start_ns + 1)
    order = np.lexsort((start_ns, place))
    same = place[order][1:] == place[order][:-1]
    crowded = np.unique(place[order][1:][same & (start_ns[order][1:] < last_ns[order][:-1])])
    order = order[np.isin(place[order], crowded)]
    rows = zip(place[order].tolist(), start_ns[order].tolist(), last_ns[order].tolist(), strict=True)
    assigned = np.empty(len(order), np.int64)
    current, taken, free, used = -1, list[tuple[int, int]](), list[int](), 0
    for position, (of_place, start, end) in enumerate(rows):
        if of_place != current:
            current, taken, free, used = of_place, [], [], 0
        while taken and taken[0][0] <= start:
            heappush(free, heappop(taken)[1])
        if not free:
            free, used = [used], used + 1
        own = heappop(free)
        heappush(taken, (end, own))
        assigned[position] = own
    lane[order] = assigned
    return lane


class TrackGroup(IntEnum):
    """The groups of threads of one GPU, and after them those of one rank of a program, from top to bottom."""

    GPU = 0
    PREFILL = 1
    ALL_REDUCE = 2
    SENDS = 3
    RECEIVES = 4
    ITERATIONS = 5
    RANK = 6
    COLLECTIVES = 7
    SENDS_OF_RANK = 8
    RECEIVES_OF_RANK = 9


_FIRST_THREAD = 100_000

_GROUP = 10_000
"""Thread numbers are spaced by ``_FIRST_THREAD`` per GPU, or rank of a program, and by ``_GROUP``, the most lanes of a
group, per group."""

_PROCESS = 2**32
"""More than any number of a thread."""

_TRANSFERS = {"send": TrackGroup.SENDS, "receive": TrackGroup.RECEIVES}

_LANE_NAMES = {
    TrackGroup.PREFILL: "prefills",
    TrackGroup.ALL_REDUCE: "collectives",
    TrackGroup.SENDS: "sends",
    TrackGroup.RECEIVES: "receives",
    TrackGroup.ITERATIONS: "iterations",
    TrackGroup.COLLECTIVES: "collectives",
    TrackGroup.SENDS_OF_RANK: "sends",
    TrackGroup.RECEIVES_OF_RANK: "receives",
}

_OF_RANK = {
    ITERATION: TrackGroup.ITERATIONS,
    **dict.fromkeys(COLLECTIVE_KINDS, TrackGroup.COLLECTIVES),
    "send": TrackGroup.SENDS_OF_RANK,
    "receive": TrackGroup.RECEIVES_OF_RANK,
}


class Tracks:
    """Assign numbers to processes and threads, and remember their names.

    Processes count from 1. The threads of a process are drawn in the order of their numbers, which encode the GPU, the
    group and the lane.
    """

    def __init__(self) -> None:
        self._processes = count(1)
        self._services: dict[str, int] = {}
        self._gpus: int | None = None
        self._hosts: dict[tuple[str, str], int] = {}
        self._threads: dict[tuple[int, int], str] = {}
        self._counters: dict[tuple[str, str, str, Quantity], str] = {}
        self._counter_names: set[tuple[str, str]] = set()
        self.trials, self.links, self.node_pairs = (next(self._processes) for _ in range(3))
        self.trial_thread = _FIRST_THREAD

    def of_spans(self, spans: Spans, *, of_program: bool = False) -> tuple[Column, Column]:
        """Return process and thread of every span, such that no two spans on one thread overlap.

        GPUs have threads of their own, or ranks if the spans are ``of_program``. Raise RunError if a group of threads
        would need more than ``_GROUP`` lanes.
        """
        process = self._of_hosts(spans)
        owner = spans.rank if of_program else spans.gpu
        group = (
            spans.kind.mapped(lambda kind: _OF_RANK.get(kind, TrackGroup.RANK))
            if of_program
            else _groups(spans, process)
        )
        thread = _FIRST_THREAD * (owner + 1) + _GROUP * group
        lane = assign_lanes(process * _PROCESS + thread, spans.start_ns, spans.end_ns)
        if lane.max(initial=0) >= _GROUP:
            raise RunError(
                f"a GPU has more than {_GROUP} spans at the same time, which a trace cannot show: leave this trial out"
            )
        thread += lane
        _, first = np.unique(process * _PROCESS + thread, return_index=True)
        for row in first:
            key = (int(process[row]), int(thread[row]))
            self._threads[key] = _thread_name(int(owner[row]), TrackGroup(int(group[row])), int(lane[row]))
        return process, thread

    def _of_hosts(self, spans: Spans) -> Column:
        """Return the process of every span, one per host; number new hosts by their datacenter's first stage."""
        both = spans.host.codes * len(spans.datacenter.values) + spans.datacenter.codes
        _, first, number = np.unique(both, return_index=True, return_inverse=True)
        names = [
            (spans.datacenter.values[spans.datacenter.codes[row]], spans.host.values[spans.host.codes[row]])
            for row in first
        ]
        lowest = np.full((len(first), 2), np.iinfo(np.int64).max)
        for column, values in enumerate((spans.pipeline, spans.stage)):
            # The GPUs of a pool have no stage, and come after those that train.
            np.minimum.at(lowest[:, column], number[values >= 0], values[values >= 0])
        begins: dict[str, int] = {}
        for (datacenter, _), (_, stage) in zip(names, lowest.tolist(), strict=True):
            begins[datacenter] = min(stage, begins.get(datacenter, stage))
        order = sorted(
            range(len(names)), key=lambda host: (begins[names[host][0]], names[host][0], *lowest[host], names[host][1])
        )
        for host in order:
            if names[host] not in self._hosts:
                self._hosts[names[host]] = next(self._processes)
        return np.array([self._hosts[name] for name in names], np.int64)[number]

    def counter(self, scope: str, source: str, destination: str, quantity: Quantity) -> tuple[int, str]:
        """Return process and name of a counter track. Names are unique in a process: only they distinguish tracks."""
        key = (scope, source, destination, quantity)
        if key not in self._counters:
            name = f"{source} → {destination} {quantity.name}" if destination else f"{source} {quantity.name}"
            while (scope, name) in self._counter_names:
                name += "'"
            self._counters[key] = name
            self._counter_names.add((scope, name))
        return self._of_scope(scope), self._counters[key]

    def _of_scope(self, scope: str) -> int:
        """Return the process of a scope's counters; the GPUs' process gets a number once there are any."""
        if scope == GPU:
            self._gpus = next(self._processes) if self._gpus is None else self._gpus
            return self._gpus
        return self.links if scope == LINK else self.node_pairs

    def of_requests(self, datacenter: str) -> int:
        """Return the process of the requests to a datacenter."""
        if datacenter not in self._services:
            self._services[datacenter] = next(self._processes)
        return self._services[datacenter]

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Yield the events that name and order all processes and threads; hosts are grouped by datacenter."""
        yield from _named("process", self.trials, None, "trials", 0)
        yield from _named("thread", self.trials, self.trial_thread, "trial", 0)
        scopes = {scope for scope, *_ in self._counters}
        if LINK in scopes:
            yield from _named("process", self.links, None, "links between datacenters", 1)
        if scopes - {LINK, GPU}:
            yield from _named("process", self.node_pairs, None, "pairs of hosts", 2)
        for position, (datacenter, number) in enumerate(self._services.items()):
            yield from _named("process", number, None, f"requests to {datacenter}", 3 + position)
        first = {datacenter: number for (datacenter, _), number in reversed(self._hosts.items())}
        hosts = sorted(self._hosts.items(), key=lambda host: (first[host[0][0]], host[1]))
        for position, ((datacenter, host), number) in enumerate(hosts):
            yield from _named("process", number, None, f"{datacenter} / {host}", 3 + len(self._services) + position)
        if self._gpus is not None:
            last = 3 + len(self._services) + len(hosts)
            yield from _named("process", self._gpus, None, "GPUs, sampled by NVML: a cross-check", last)
        for position, ((process, thread), name) in enumerate(sorted(self._threads.items())):
            yield from _named("thread", process, thread, name, position)


def _thread_name(owner: int, group: TrackGroup, lane: int) -> str:
    name = f"rank {owner}" if group in {*_OF_RANK.values(), TrackGroup.RANK} else f"GPU {owner}"
    if group in _LANE_NAMES:
        return f"{name} {_LANE_NAMES[group]} {lane + 1}"
    return f"{name} ({lane + 1})" if lane else name


def _groups(spans: Spans, process: Column) -> Column:
    """Return the group of every span.

    A GPU's prefills are in the group of its computation unless they overlap it; else they have their own group. The
    same holds for collectives, which must overlap neither computation nor prefills of that group.
    """
    group = spans.kind.mapped(lambda kind: _TRANSFERS.get(kind, TrackGroup.GPU))
    prefilling = spans.kind.equal(PREFILL)
    reducing = spans.kind.mapped(lambda kind: int(kind in JOINT_KINDS)) == 1
    place = process * _PROCESS + spans.gpu
    for own, among, apart in (
        (prefilling, (group == TrackGroup.GPU) & ~reducing, TrackGroup.PREFILL),
        (reducing, group == TrackGroup.GPU, TrackGroup.ALL_REDUCE),
    ):
        working = among & (group == TrackGroup.GPU)
        lanes = assign_lanes(place[working], spans.start_ns[working], spans.end_ns[working])
        crowded = np.isin(place, place[working][lanes > 0])
        group[own & crowded] = apart
    return group


def _named(what: str, process: int, thread: int | None, name: str, position: int) -> Iterator[dict[str, Any]]:
    place = {"ph": "M", "pid": process} | ({} if thread is None else {"tid": thread})
    yield {**place, "name": f"{what}_name", "args": {"name": name}}
    yield {**place, "name": f"{what}_sort_index", "args": {"sort_index": position}}
