"""The tables of a run's programs: where their time went, rank by rank and collective by collective, and a reading."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import (
    COLLECTIVE,
    COMPUTE,
    OPTIMIZER,
    OTHER,
    OVERLAPPED,
    TRANSFER,
    CollectiveTime,
    RankTime,
    Window,
    group_size,
)
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, TableCell, place_columns
from wanbed.results.text import (
    UNKNOWN,
    count_text,
    kind_text,
    list_text,
    percent_text,
    seconds_text,
    size_text,
    three_digits,
)

MAX_RANKS = 24
MAX_COLLECTIVES = 8
"""The most rows of one trial in either table."""
SLOWED = 1.05
"""Above this ratio to the median of the measured iterations, the reading says that profiled ones were longer."""
_MAX_NAMED = 2
"""The most kinds of collectives, or ranks, that a sentence names."""
_WORTH_SAYING = 0.05
"""The least share of an iteration that is waited for other ranks, or spent on nothing known, to be read out."""

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


@dataclass(frozen=True)
class ProgramTrial:
    """The typical trial of one variant at one sweep point.

    ``profiled`` is the number of iterations that a profiler recorded. ``profiled_s`` is the mean length of these and
    ``iteration_s`` the median of the measured ones, None without any. ``wan_bytes`` are the fewest and the most bytes
    that crossed between datacenters in a measured iteration, None if unknown.
    """

    where: str
    variant: str
    profiled: int
    profiled_s: float | None
    iteration_s: float | None
    ranks: Sequence[RankTime]
    collectives: Sequence[CollectiveTime]
    wan_bytes: tuple[float, float] | None

    @property
    def recorded(self) -> Sequence[RankTime]:
        """The ranks that were profiled."""
        return [each for each in self.ranks if each.parts_ns is not None]

    def name_of(self, rank: int) -> str:
        """Return a rank and its host."""
        return next(f"rank {each.rank} on {each.host}" for each in self.ranks if each.rank == rank)

    def share(self, part: str) -> float:
        """Return a part's share of the profiled ranks' time, a fraction; there must be such ranks."""
        whole_ns = sum(each.end_ns - each.start_ns for each in self.recorded)
        return sum((each.parts_ns or {}).get(part, 0) for each in self.recorded) / whole_ns

    @property
    def computes(self) -> bool:
        """Tell whether any rank has forward or backward: otherwise the profiler saw nothing but collectives."""
        return any((each.parts_ns or {}).get(COMPUTE) for each in self.ranks)


def _program_trials(own: ReportedRun) -> list[ProgramTrial]:
    """Return the typical trial of each sweep point and variant that ran a program, in the order of the run's trials."""
    run = own.run
    found = dict.fromkeys((trial.point, trial.variant) for trial in run.trials if trial.program is not None)
    return [_of_trial(run.rows[_typical(run, point, variant).id]) for point, variant in found]


def _typical(run: Run, point: int, variant: str) -> StoredTrial:
    first = next(trial for trial in run.trials if (trial.point, trial.variant) == (point, variant))
    return run.typical_trial(point, variant) or first


def _of_trial(own: TrialRows) -> ProgramTrial:
    trial, spans = own.trial, own.spans
    windows = metrics.successive_windows(metrics.iteration_windows(spans))
    profiled = metrics.profiled_iterations(spans, trial.profiled_iterations)
    of_profiled = windows.loc[profiled]
    lengths_ns = of_profiled["end_ns"] - of_profiled["start_ns"]
    first = trial.first_measured_iteration
    times_s = metrics.iteration_times_s(windows, first, trial.profiled_iterations)
    return ProgramTrial(
        where=trial.where,
        variant=trial.variant,
        profiled=len(profiled),
        profiled_s=float(lengths_ns.mean()) / metrics.NS_PER_S if len(profiled) else None,
        iteration_s=metrics.mean_time_s(times_s),
        ranks=metrics.rank_times(spans, profiled),
        collectives=metrics.collective_times(spans, profiled),
        wan_bytes=_wan_bytes(own.link_samples, windows.iloc[first : len(windows) - len(profiled)]),
    )


def _wan_bytes(link_samples: pd.DataFrame, measured: pd.DataFrame) -> tuple[float, float] | None:
    if measured.empty:
        return None
    window = Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()))
    found = metrics.wan_bytes_within(link_samples, window)
    return None if found is None else (found[0] / len(measured), found[1] / len(measured))


_RankRow = tuple[ProgramTrial, RankTime | None]
"""Without a rank where the profiler saw none."""
_CollectiveRow = tuple[ProgramTrial, CollectiveTime]


def program_table(own: ReportedRun) -> Table | None:
    """Return the table of where the time of a run's programs went; None if no program ran."""
    trials = own.once(_program_trials)
    ranks = [(trial, rank) for trial in trials for rank in (*trial.ranks[:MAX_RANKS], *([] if trial.ranks else [None]))]
    transfers = any(each.recorded and each.share(TRANSFER) for each in trials)
    parts = [part for part in _PARTS if part != TRANSFER or transfers]
    between = "for sends and receives, and else it is" if transfers else "and else it is"
    columns: list[Column[_RankRow]] = [
        *place_columns(itemgetter(0)),
        Column("rank", lambda row: "none was profiled" if row[1] is None else f"rank {row[1].rank} on {row[1].host}"),
        Column("iteration", lambda row: "" if row[1] is None else _milliseconds(row[1].iteration_ns)),
        *(Column(_PARTS[part], partial(_part, part)) for part in parts),
    ]
    return Table.of(
        "programs",
        "Where the time of programs went",
        ranks,
        columns,
        [_reading(trial, several=len(trials) > 1) for trial in trials],
        record=_rank_record,
        note=f"{_NOTE_OF_RANKS}, {between} other: Python, launching, loading of data.",
    )


def collective_table(own: ReportedRun) -> Table | None:
    """Return the table of the collectives of a run's programs; None if none was profiled."""
    trials = own.once(_program_trials)
    return Table.of(
        "collectives",
        "Collectives of programs",
        [(trial, each) for trial in trials for each in trial.collectives[:MAX_COLLECTIVES]],
        _COLLECTIVE_COLUMNS,
        "",
        record=_collective_record,
        note=_NOTE_OF_COLLECTIVES,
    )


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
    *place_columns(itemgetter(0)),
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


def _reading(trial: ProgramTrial, *, several: bool) -> str:
    """Return the sentences about one trial, under its name where there are ``several``."""
    of_time = (_collectives, _late, _rest, _unprofiled) if trial.recorded else (_without_profile,)
    sentences = [*(sentence(trial) for sentence in of_time), _slowed(trial), _wan(trial), _cut(trial)]
    title = ", ".join(filter(None, (trial.variant, trial.where)))
    return f"{f'{title}: ' if several else ''}{' '.join(filter(None, sentences))}"


def _without_profile(trial: ProgramTrial) -> str:
    if not trial.profiled:
        return "No iteration was profiled (profile: 0), so that it is not known where its time went."
    last = count_text(trial.profiled, "last iteration")
    return f"No rank left a profile of its {last}, so that it is not known where its time went."


def _collectives(trial: ProgramTrial) -> str:
    of = "the profiled iteration" if trial.profiled == 1 else f"{trial.profiled} profiled iterations"
    if not trial.collectives:
        return f"No collective ran in {of}."
    kinds = list(dict.fromkeys(each.kind for each in trial.collectives))
    named = [_named([each for each in trial.collectives if each.kind == kind], len(trial.recorded)) for kind in kinds]
    whole = list_text([*named[:_MAX_NAMED], *(["others"] if len(named) > _MAX_NAMED else [])])
    hidden = trial.share(OVERLAPPED)
    behind = f"Computation hid another {percent_text(hidden)}." if hidden else "Computation hid nothing of them."
    an_iteration = "" if trial.profiled == 1 else " an iteration"
    share = percent_text(trial.share(COLLECTIVE))
    return (
        f"Ranks spent {share} of {of} in collectives, {whole}{an_iteration}, and computed nothing meanwhile. {behind}"
    )


def _named(of_kind: Sequence[CollectiveTime], ranks: int) -> str:
    """Return how many collectives of one kind, in any group, a rank took part in, and how large they were."""
    number = sum(each.count * each.ranks for each in of_kind) / ranks
    count = three_digits(number) if number % 1 else f"{number:.0f}"
    name = f"{count} {kind_text(of_kind[0].kind)}{'' if number == 1 else 's'}"
    smallest, largest = min(each.smallest_bytes for each in of_kind), max(each.largest_bytes for each in of_kind)
    sizes = dict.fromkeys((size_text(smallest), size_text(largest)))
    return f"{name} of {' to '.join(sizes)}" if largest else name


def _unprofiled(trial: ProgramTrial) -> str:
    """Name the ranks that left no profile, where others did."""
    missing = [trial.name_of(each.rank) for each in trial.ranks if each.parts_ns is None]
    if not missing or not trial.recorded:
        return ""
    named = list_text([*missing[:_MAX_NAMED], *(["others"] if len(missing) > _MAX_NAMED else [])])
    return f"{_sentence(named)} left no profile."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _late(trial: ProgramTrial) -> str:
    """Name the rank that the others waited for, if that took much of the iteration."""
    known = [each for each in trial.collectives if each.waited_ns and each.ranks > 1 and trial.profiled_s]
    worst = max(known, key=lambda each: each.waited_ns or 0, default=None)
    if worst is None or worst.slowest_rank is None or not worst.last or not trial.profiled_s:
        return ""
    waited_s = (worst.waited_ns or 0) / 1e9
    if waited_s < _WORTH_SAYING * trial.profiled_s:
        return ""
    return (
        f"{_sentence(trial.name_of(worst.slowest_rank))} was the last to begin "
        f"{worst.last[worst.slowest_rank]} of {count_text(sum(worst.last.values()), kind_text(worst.kind))}, for which "
        f"the ranks waited {seconds_text(waited_s)} an iteration on average."
    )


def _rest(trial: ProgramTrial) -> str:
    share = trial.share(OTHER)
    if not trial.computes:
        return "The profiler saw neither forward nor backward, so that nothing is known to hide collectives."
    if share <= _WORTH_SAYING:
        return ""
    return f"{percent_text(share)} was neither computation nor a collective: Python, launching, loading of data."


def _slowed(trial: ProgramTrial) -> str:
    if not trial.profiled_s or not trial.iteration_s or trial.profiled_s <= SLOWED * trial.iteration_s:
        return ""
    return (
        f"Profiled iterations took {seconds_text(trial.profiled_s)}, {trial.profiled_s / trial.iteration_s:.2f} times "
        "the median of those without a profiler: their shares are not exactly those of the others."
    )


def _wan(trial: ProgramTrial) -> str:
    if trial.wan_bytes is None:
        return ""
    low, high = trial.wan_bytes
    texts = dict.fromkeys((size_text(low), size_text(high)))
    return f"A measured iteration sent {' to '.join(texts)} over the WAN, headers included{_bounds(len(texts))}."


def _bounds(texts: int) -> str:
    return ", as far as the times of the counters' readings tell" if texts > 1 else ""


def _cut(trial: ProgramTrial) -> str:
    found = []
    if len(trial.ranks) > MAX_RANKS:
        found.append(f"the first {MAX_RANKS} of {count_text(len(trial.ranks), 'rank')}")
    if len(trial.collectives) > MAX_COLLECTIVES:
        found.append(
            f"the {MAX_COLLECTIVES} of {len(trial.collectives)} kinds and groups of collectives that were hidden least"
        )
    return f"Shown are {list_text(found)}." if found else ""
