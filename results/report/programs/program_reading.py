"""Explain in a few sentences where the time of a program's iteration went."""

from collections.abc import Sequence

from wanbed.results.metrics import COLLECTIVE, OTHER, OVERLAPPED, CollectiveTime
from wanbed.results.report.programs.program_trial import ProgramTrial
from wanbed.results.text.number_text import count_text, list_text, percent_text, seconds_text, size_text, three_digits
from wanbed.results.text.span_text import kind_text

SLOWED = 1.05
"""Above this ratio to the median of the measured iterations, the reading says that profiled ones were longer."""
_MAX_NAMED = 2
"""The most kinds of collectives, or ranks, that a sentence names."""
_WORTH_SAYING = 0.05
"""The least share of an iteration that is waited for other ranks, or spent on nothing known, to be read out."""


def reading_of(trial: ProgramTrial, most_ranks: int, most_collectives: int) -> str:
    """Return the sentences about one trial, of which tables show at most so many ranks and collectives."""
    of_time = (_collectives, _late, _rest, _unprofiled) if trial.recorded else (_without_profile,)
    sentences = [*(sentence(trial) for sentence in of_time), _slowed(trial), _wan(trial)]
    return " ".join(filter(None, (*sentences, _cut(trial, most_ranks, most_collectives))))


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
