"""Tabulate where the time of a run's programs went, rank by rank and collective by collective."""

from collections.abc import Mapping
from functools import partial
from typing import Any

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
from wanbed.results.report.table import SWEEP_POINT, Column, Table, TableCell
from wanbed.results.text.number_text import UNKNOWN, percent_text, seconds_text, size_text, three_digits
from wanbed.results.text.span_text import kind_text

MAX_RANKS = 24
MAX_COLLECTIVES = 8
"""The most rows of one trial in either table."""

_PARTS = {
    COMPUTE: "forward and backward",
    COLLECTIVE: "collectives, not hidden",
    OPTIMIZER: "optimizer",
    TRANSFER: "sends and receives",
    OTHER: "other",
    OVERLAPPED: "collectives, hidden",
}
_NOTE_OF_RANKS = (
    "A profiler recorded these iterations, mean over them; they do not count in the iteration time above. Time counts "
    "once: for forward and backward, then for collectives that these did not hide, then for the optimizer"
)
_NOTE_OF_COLLECTIVES = (
    "Count, bytes and times are those of a rank and iteration, mean over the ranks. Under way is a collective from its "
    "begin on a rank to its end there; it waits until the last rank has begun it too, and is hidden while the rank "
    "computes forward or backward."
)

_RankRow = tuple[ProgramTrial, RankTime | None]
"""Without a rank where the profiler saw none."""
_CollectiveRow = tuple[ProgramTrial, CollectiveTime]


def program_tables(run: Run) -> list[Table]:
    """Return the tables of a run's programs; none if no program ran."""
    trials = program_trials(run)
    ranks = [(trial, rank) for trial in trials for rank in (*trial.ranks[:MAX_RANKS], *([] if trial.ranks else [None]))]
    collectives = [(trial, each) for trial in trials for each in trial.collectives[:MAX_COLLECTIVES]]
    transfers = any(each.recorded and each.share(TRANSFER) for each in trials)
    parts = [part for part in _PARTS if part != TRANSFER or transfers]
    between = "for sends and receives, and else it is" if transfers else "and else it is"
    columns: list[Column[_RankRow]] = [
        Column(SWEEP_POINT, lambda row: row[0].where),
        Column("variant", lambda row: row[0].variant),
        Column("rank", lambda row: "none was profiled" if row[1] is None else f"rank {row[1].rank} on {row[1].host}"),
        Column("iteration", lambda row: "" if row[1] is None else _milliseconds(row[1].iteration_ns)),
        *(Column(_PARTS[part], partial(_part, part)) for part in parts),
    ]
    found = (
        Table.of(
            "programs",
            "Where the time of programs went",
            ranks,
            columns,
            [_reading(trial, several=len(trials) > 1) for trial in trials],
            record=_rank_record,
            note=f"{_NOTE_OF_RANKS}, {between} other: Python, launching, loading of data.",
        ),
        Table.of(
            "collectives",
            "Collectives of programs",
            collectives,
            _COLLECTIVE_COLUMNS,
            "",
            record=_collective_record,
            note=_NOTE_OF_COLLECTIVES,
        ),
    )
    return [table for table in found if table is not None]


def _reading(trial: ProgramTrial, *, several: bool) -> str:
    title = ", ".join(filter(None, (trial.variant, trial.where)))
    return f"{f'{title}: ' if several else ''}{reading_of(trial, MAX_RANKS, MAX_COLLECTIVES)}"


def _part(part: str, row: _RankRow) -> TableCell:
    _, rank = row
    if rank is None:
        return TableCell("")
    if rank.parts_ns is None:
        return TableCell(UNKNOWN)
    return TableCell(_milliseconds(rank.parts_ns[part] / rank.iterations), (percent_text(rank.share(part)),))


def _milliseconds(time_ns: float) -> str:
    return seconds_text(time_ns / 1e9)


def _rank_record(row: _RankRow) -> Mapping[str, Any]:
    trial, rank = row
    return {
        "where": trial.where,
        "variant": trial.variant,
        "rank": rank and rank.rank,
        "host": rank and rank.host,
        "iteration_ns": rank and rank.iteration_ns,
        **{f"{part}_fraction": rank and rank.share(part) for part in _PARTS},
    }


def _sizes(row: _CollectiveRow) -> str:
    _, each = row
    return " to ".join(dict.fromkeys((size_text(each.smallest_bytes), size_text(each.largest_bytes))))


def _not_hidden(row: _CollectiveRow) -> TableCell:
    _, each = row
    share = (percent_text(each.exposed_ns / each.time_ns),) if each.time_ns else ()
    return TableCell(_milliseconds(each.exposed_ns), share)


def _last(row: _CollectiveRow) -> TableCell:
    trial, each = row
    if each.ranks <= 1:
        return TableCell("")
    if not each.last or each.slowest_rank is None:
        return TableCell(UNKNOWN)
    times = f"{each.last[each.slowest_rank]} of {sum(each.last.values())} times"
    return TableCell(trial.name_of(each.slowest_rank), (times,))


def _group_text(trial: ProgramTrial, each: CollectiveTime) -> str:
    size = group_size(each.group) or each.ranks
    if not each.group or each.group == ",".join(str(rank.rank) for rank in trial.ranks):
        return f"all {size} ranks" if each.group else f"{size} ranks"
    return f"ranks {each.group.replace(',', ', ')}" if size > 1 else f"rank {each.group}"


_COLLECTIVE_COLUMNS: tuple[Column[_CollectiveRow], ...] = (
    Column(SWEEP_POINT, lambda row: row[0].where),
    Column("variant", lambda row: row[0].variant),
    Column("collective", lambda row: TableCell(kind_text(row[1].kind), (_group_text(*row),))),
    Column("count", lambda row: three_digits(row[1].count) if row[1].count % 1 else f"{row[1].count:.0f}"),
    Column("each", _sizes),
    Column("bytes", lambda row: size_text(row[1].size_bytes)),
    Column("under way", lambda row: _milliseconds(row[1].time_ns)),
    Column("not hidden", _not_hidden),
    Column("waiting for a rank", lambda row: UNKNOWN if row[1].waited_ns is None else _milliseconds(row[1].waited_ns)),
    Column("last to begin", _last),
)


def _collective_record(row: _CollectiveRow) -> Mapping[str, Any]:
    trial, each = row
    return {
        "where": trial.where,
        "variant": trial.variant,
        "kind": each.kind,
        "group": each.group,
        "count": each.count,
        "size_bytes": each.size_bytes,
        "time_ns": each.time_ns,
        "exposed_ns": each.exposed_ns,
        "waited_ns": each.waited_ns,
        "slowest_rank": each.slowest_rank,
    }
