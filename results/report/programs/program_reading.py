"""Explain in a few sentences where the time of a program's iteration went."""

from results.metrics import COLLECTIVE, OTHER, OVERLAPPED, CollectiveTime
from results.report.programs.program_trial import ProgramTrial
from results.text.number_text import count_text, list_text, percent_text, seconds_text, size_text
from results.text.span_text import kind_text

SLOWED = 1.05
"""Above this ratio to the median of the measured iterations, the reading says that profiled ones were longer."""
_MAX_NAMED = 2
"""The most kinds of collectives that the reading names."""
_WORTH_SAYING = 0.05
"""The least share of an iteration that is waited for other ranks, or spent on nothing known, to be read out."""


def reading_of(trial: ProgramTrial, most_ranks: int, most_collectives: int) -> str:
    """Return the sentences about one trial, of which tables show at most so many ranks and collectives."""
    sentences = [_profile(trial)] if not trial.recorded else [_collectives(trial), _late(trial), _rest(trial)]
    return " ".join(filter(None, (*sentences, _slowed(trial), _wan(trial), _cut(trial, most_ranks, most_collectives))))


def _profile(trial: ProgramTrial) -> str:
    if not trial.profiled:
        return "No iteration was profiled (profile: 0), so that it is not known where its time went."
    last = count_text(trial.profiled, "last iteration")
    return f"No rank left a profile of its {last}, so that it is not known where its time went."


def _collectives(trial: ProgramTrial) -> str:
    of = "the profiled iteration" if trial.profiled == 1 else f"{trial.profiled} profiled iterations"
    if not trial.collectives:
        return f"No collective ran in {of}."
    named = trial.collectives[:_MAX_NAMED]
    several = len(trial.collectives) > len(named)
    whole = list_text([*map(_named, named), *(["others"] if several else [])])
    hidden = trial.share(OVERLAPPED)
    behind = f"Computation hid another {percent_text(hidden)}." if hidden else "Computation hid nothing of them."
    an_iteration = "" if trial.profiled == 1 else " an iteration"
    share = percent_text(trial.share(COLLECTIVE))
    return (
        f"Ranks spent {share} of {of} in collectives, {whole}{an_iteration}, and computed nothing meanwhile. {behind}"
    )


def _named(each: CollectiveTime) -> str:
    count = f"{each.count:.0f}" if each.count >= 1 else "fewer than 1"
    name = kind_text(each.kind) + ("" if count == "1" else "s")
    if not each.size_bytes:
        return f"{count} {name}"
    sizes = size_text(each.smallest_bytes) if each.smallest_bytes == each.largest_bytes else ""
    return f"{count} {name} of {sizes}" if sizes else f"{count} {name} of {size_text(each.size_bytes)} together"


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
        f"R{trial.name_of(worst.slowest_rank)[1:]} was the last to begin "
        f"{worst.last[worst.slowest_rank]} of {count_text(sum(worst.last.values()), kind_text(worst.kind))}, for which "
        f"the ranks waited {seconds_text(waited_s)} an iteration on average."
    )


def _rest(trial: ProgramTrial) -> str:
    share = trial.share(OTHER)
    if not trial.computes:
        return "The profiler saw neither forward nor backward, so that nothing is known to hide collectives."
    return f"{percent_text(share)} went into nothing that the profiler knows." if share > _WORTH_SAYING else ""


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


def _cut(trial: ProgramTrial, most_ranks: int, most_collectives: int) -> str:
    found = [
        f"the first {most} of {count_text(number, what)}"
        for what, number, most in (("rank", len(trial.ranks), most_ranks),)
        if number > most
    ]
    if len(trial.collectives) > most_collectives:
        found.append(
            f"the {most_collectives} of {len(trial.collectives)} kinds and groups of collectives that were hidden least"
        )
    return f"Shown are {list_text(found)}." if found else ""
