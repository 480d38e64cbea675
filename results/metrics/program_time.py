"""Divide the profiled time of a user's program into computation, collectives and the rest.

A profiler recorded what each rank did in these iterations. Time counts once, for the first of these that applies:

- ``compute``: the device worked on forward or backward;
- ``optimizer``: it worked on a step of the optimizer; where a step waits, for a collective perhaps, nothing works;
- ``collective``: a collective was under way, transferring or waiting for other ranks, and no such work hid it;
- ``transfer``: a send or receive of the program's own was under way;
- ``other``: none of these: Python, launching of kernels, loading of data.

Source: this project's definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.gpu_time import Gpus
from wanbed.results.metrics.intervals import GroupedIntervals, Numbers
from wanbed.results.records.span_log import COLLECTIVE_KINDS, COMPUTE_KINDS, ITERATION, PROFILED_KINDS

Flags = npt.NDArray[np.bool_]

COLLECTIVE, TRANSFER, OTHER = "collective", "transfer", "other"
COMPUTE, OPTIMIZER = "compute", "optimizer"
PROGRAM_PARTS = (COMPUTE, COLLECTIVE, OPTIMIZER, TRANSFER, OTHER)
OVERLAPPED = "overlapped"
"""The time of collectives that computation hid: a part of ``compute``, and no part of its own."""

_FORWARD_AND_BACKWARD = tuple(kind for kind in COMPUTE_KINDS if kind != OPTIMIZER)

_KINDS = {
    COMPUTE: _FORWARD_AND_BACKWARD,
    OPTIMIZER: (OPTIMIZER,),
    COLLECTIVE: COLLECTIVE_KINDS,
    TRANSFER: ("send", "receive"),
}


@dataclass(frozen=True)
class RankTime:
    """The time of one rank in its profiled iterations; ``start_ns`` and ``end_ns`` are their first and last edge.

    ``parts_ns`` has each of ``PROGRAM_PARTS``, which add up to the time between the edges, and ``OVERLAPPED``. It is
    None if the rank was not profiled.
    """

    rank: int
    host: str
    datacenter: str
    iterations: int
    start_ns: int
    end_ns: int
    parts_ns: Mapping[str, int] | None

    @property
    def iteration_ns(self) -> float:
        """The mean length of its profiled iterations."""
        return (self.end_ns - self.start_ns) / self.iterations

    def share(self, part: str) -> float | None:
        """Return a part's share of the rank's profiled time, a fraction; None if the rank was not profiled."""
        length_ns = self.end_ns - self.start_ns
        return None if self.parts_ns is None or not length_ns else self.parts_ns[part] / length_ns


def profiled_iterations(spans: pd.DataFrame, profiled: int | None) -> Numbers:
    """Return the numbers of a program's profiled iterations: the last ``profiled`` that its ranks stated."""
    stated = np.unique(spans["iteration"].to_numpy(np.int64)[(spans["kind"] == ITERATION).to_numpy(bool)])
    return stated[len(stated) - min(profiled or 0, len(stated)) :]


def rank_times(spans: pd.DataFrame, iterations: Numbers) -> list[RankTime]:
    """Return how each rank of a program spent these iterations, which are consecutive, in the order of the ranks.

    Every rank is measured between its own edges, since ranks need not end an iteration at the same time.
    """
    edges = spans[(spans["kind"] == ITERATION).to_numpy(bool) & spans["iteration"].isin(iterations).to_numpy(bool)]
    edges = edges.sort_values(["rank", "iteration"])
    ranks = pd.Index(edges["rank"].unique())
    number = ranks.get_indexer(pd.Index(edges["rank"]))
    start_ns, end_ns = np.full(len(ranks), np.iinfo(np.int64).max), np.zeros(len(ranks), np.int64)
    np.minimum.at(start_ns, number, edges["start_ns"].to_numpy(np.int64))
    np.maximum.at(end_ns, number, edges["end_ns"].to_numpy(np.int64))
    counts = np.bincount(number, minlength=len(ranks))

    group = ranks.get_indexer(pd.Index(spans["rank"]))
    own, group = spans[group >= 0], group[group >= 0].astype(np.int64)
    parts_ns = _parts_ns(own, group, start_ns, end_ns)
    recorded = _recorded(own, group, start_ns, end_ns)
    places = edges.drop_duplicates("rank")
    return [
        RankTime(
            int(rank),
            str(host),
            str(datacenter),
            int(counts[position]),
            int(start_ns[position]),
            int(end_ns[position]),
            {part: int(times_ns[position]) for part, times_ns in parts_ns.items()} if recorded[position] else None,
        )
        for position, (rank, host, datacenter) in enumerate(
            zip(ranks, places["host"], places["datacenter"], strict=True)
        )
    ]


def program_parts(spans: pd.DataFrame, iterations: Numbers) -> pd.DataFrame:
    """Return ``PROGRAM_PARTS`` of these iterations of every GPU that was profiled: integers in ns, by (host, gpu).

    For each GPU they add up to its own time from the first of them to the end of the last.
    """
    gpus = Gpus.of(spans)
    stated = (spans["kind"] == ITERATION).to_numpy(bool) & spans["iteration"].isin(iterations).to_numpy(bool)
    start_ns, end_ns = np.full(len(gpus.index), np.iinfo(np.int64).max), np.zeros(len(gpus.index), np.int64)
    np.minimum.at(start_ns, gpus.of_span[stated], spans["start_ns"].to_numpy(np.int64)[stated])
    np.maximum.at(end_ns, gpus.of_span[stated], spans["end_ns"].to_numpy(np.int64)[stated])
    # A GPU without an iteration of its own has no time here.
    start_ns = np.minimum(start_ns, end_ns)
    parts_ns = _parts_ns(spans, gpus.of_span, start_ns, end_ns)
    frame = pd.DataFrame({part: parts_ns[part] for part in PROGRAM_PARTS}, index=gpus.index)
    profiled: pd.DataFrame = frame[_recorded(spans, gpus.of_span, start_ns, end_ns)]
    return profiled


def program_busy(parts: pd.DataFrame) -> pd.DataFrame:
    """Return busy and idle time of GPUs, as ``gpu_busy`` does, from their ``program_parts``."""
    busy_ns = parts[COMPUTE] + parts[OPTIMIZER]
    return pd.DataFrame({"busy_ns": busy_ns, "idle_ns": parts.sum(axis="columns") - busy_ns})


def _parts_ns(spans: pd.DataFrame, group: Numbers, start_ns: Numbers, end_ns: Numbers) -> dict[str, Numbers]:
    """Return the parts of each group's time from its ``start_ns`` to its ``end_ns``, and ``OVERLAPPED``."""
    kinds = spans["kind"]
    starts_ns, ends_ns = (
        np.clip(spans[name].to_numpy(np.int64), start_ns[group], end_ns[group]) for name in ("start_ns", "end_ns")
    )

    def covered(among: tuple[str, ...]) -> Numbers:
        own = kinds.isin(among).to_numpy(bool)
        return GroupedIntervals.of(group[own], starts_ns[own], ends_ns[own]).covered(len(start_ns))

    parts_ns: dict[str, Numbers] = {}
    counted: tuple[str, ...] = ()
    before_ns = np.zeros(len(start_ns), np.int64)
    for part, among in _KINDS.items():
        counted += among
        union_ns = covered(counted)
        parts_ns[part] = union_ns - before_ns
        before_ns = union_ns
    parts_ns[OTHER] = end_ns - start_ns - before_ns
    return {**parts_ns, OVERLAPPED: covered(COLLECTIVE_KINDS) - parts_ns[COLLECTIVE]}


def _recorded(spans: pd.DataFrame, group: Numbers, start_ns: Numbers, end_ns: Numbers) -> Flags:
    """Return for each group whether it has a span between its edges that only a profiler records."""
    own = spans["kind"].isin(PROFILED_KINDS).to_numpy(bool)
    within = (spans["start_ns"].to_numpy() < end_ns[group]) & (spans["end_ns"].to_numpy() > start_ns[group])
    return np.bincount(group[own & within], minlength=len(start_ns)) > 0
