"""Write the report's section on programs: tables of the ranks' time and of the collectives, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.results.metrics import (
    COLLECTIVE,
    COMPUTE,
    OPTIMIZER,
    OTHER,
    OVERLAPPED,
    TRANSFER,
    CollectiveTime,
    RankTime,
    group_size,
)
from wanbed.results.reading.run import Run
from wanbed.results.report.programs.program_reading import reading_of
from wanbed.results.report.programs.program_trial import ProgramTrial, program_trials
from wanbed.results.text.number_text import UNKNOWN, percent_text, seconds_text, size_text, three_digits
from wanbed.results.text.span_text import kind_text

MAX_RANKS = 24
MAX_COLLECTIVES = 8
"""The most rows of one trial in either table."""

Cell = tuple[str, str]
"""A figure and, beneath it, its explanation."""

_PARTS = {
    COMPUTE: "forward and backward",
    COLLECTIVE: "collectives, not hidden",
    OPTIMIZER: "optimizer",
    TRANSFER: "sends and receives",
    OTHER: "other",
}
_COLLECTIVE_COLUMNS = (
    "collective",
    "count",
    "each",
    "bytes",
    "under way",
    "not hidden",
    "waiting for a rank",
    "last to begin",
)

NOTE = (
    "A profiler recorded these iterations, mean over them; they do not count in the iteration time above. Time counts "
    "once: for forward and backward, then for collectives that these did not hide, then for the optimizer"
)
_NOTE_OF_COLLECTIVES = (
    "Count, bytes and times are those of a rank and iteration, mean over the ranks. Under way is a collective from its "
    "begin on a rank to its end there; it waits until the last rank has begun it too, and is hidden while the rank "
    "computes forward or backward."
)


@dataclass(frozen=True)
class ProgramGroup:
    """One variant at one sweep point: its title, what its figures show, and its rows of both tables."""

    title: str
    reading: str
    ranks: Sequence[Sequence[Cell]]
    collectives: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class ProgramSection:
    """The section as the template shows it."""

    columns: Sequence[str]
    collective_columns: Sequence[str]
    groups: Sequence[ProgramGroup]
    note: str
    note_of_collectives: str

    @property
    def any_collectives(self) -> bool:
        """Whether there is anything to show in the table of collectives."""
        return any(group.collectives for group in self.groups)


def program_section(run: Run) -> ProgramSection | None:
    """Return the section of a run; None if no program ran."""
    trials = program_trials(run)
    if not trials:
        return None
    transfers = any(each.recorded and each.share(TRANSFER) for each in trials)
    parts = [part for part in _PARTS if part != TRANSFER or transfers]
    between = "for sends and receives, and else it is" if transfers else "and else it is"
    return ProgramSection(
        ("rank", "iteration", *(_PARTS[part] for part in parts), "collectives, hidden"),
        _COLLECTIVE_COLUMNS,
        [_group(each, parts) for each in trials],
        f"{NOTE}, {between} other: Python, launching, loading of data.",
        _NOTE_OF_COLLECTIVES,
    )


def _group(trial: ProgramTrial, parts: Sequence[str]) -> ProgramGroup:
    return ProgramGroup(
        ", ".join(filter(None, (trial.variant, trial.where))),
        reading_of(trial, MAX_RANKS, MAX_COLLECTIVES),
        [_rank_cells(each, parts) for each in trial.ranks[:MAX_RANKS]],
        [_collective_cells(trial, each) for each in trial.collectives[:MAX_COLLECTIVES]],
    )


def _rank_cells(rank: RankTime, parts: Sequence[str]) -> list[Cell]:
    name = (f"rank {rank.rank} on {rank.host}", "")
    return [name, (_milliseconds(rank.iteration_ns), ""), *(_part(rank, part) for part in (*parts, OVERLAPPED))]


def _part(rank: RankTime, part: str) -> Cell:
    if rank.parts_ns is None:
        return UNKNOWN, ""
    return _milliseconds(rank.parts_ns[part] / rank.iterations), percent_text(rank.share(part))


def _milliseconds(time_ns: float) -> str:
    return seconds_text(time_ns / 1e9)


def _collective_cells(trial: ProgramTrial, each: CollectiveTime) -> list[Cell]:
    sizes = dict.fromkeys((size_text(each.smallest_bytes), size_text(each.largest_bytes)))
    last, times = UNKNOWN, ""
    if each.last and each.slowest_rank is not None:
        last = trial.name_of(each.slowest_rank)
        times = f"{each.last[each.slowest_rank]} of {sum(each.last.values())} times"
    return [
        (kind_text(each.kind), _group_text(trial, each)),
        (three_digits(each.count) if each.count % 1 else f"{each.count:.0f}", ""),
        (" to ".join(sizes), ""),
        (size_text(each.size_bytes), ""),
        (_milliseconds(each.time_ns), ""),
        (_milliseconds(each.exposed_ns), percent_text(each.exposed_ns / each.time_ns) if each.time_ns else ""),
        (UNKNOWN if each.waited_ns is None else _milliseconds(each.waited_ns), ""),
        (last, times) if each.ranks > 1 else ("", ""),
    ]


def _group_text(trial: ProgramTrial, each: CollectiveTime) -> str:
    size = group_size(each.group) or each.ranks
    if not each.group or each.group == ",".join(str(rank.rank) for rank in trial.ranks):
        return f"all {size} ranks" if each.group else f"{size} ranks"
    return f"ranks {each.group.replace(',', ', ')}" if size > 1 else f"rank {each.group}"
