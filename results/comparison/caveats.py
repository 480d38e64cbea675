"""Find caveats of a comparison: differences that do not forbid it, such as another machine or other versions."""

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from wanbed.results.comparison.differences import NOT_SET, Difference, differing, flattened, price_fields
from wanbed.results.comparison.pairing import Pair, Side
from wanbed.results.comparison.run_description import first_point
from wanbed.results.metrics.bootstrap import ENOUGH_REPEATS, FEWEST_REPEATS
from wanbed.results.reading.known_misses import known_misses_of, known_misses_text
from wanbed.results.reading.not_modelled import not_modelled_text, of_variant, simulated_without
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import TrialFaults
from wanbed.results.reading.validity import MachineLoad, tcp_is_modelled
from wanbed.results.text import count_text, list_text, percent_text, shortened

MAX_LISTED = 3
"""The most fields of one section that are listed; the rest are only counted."""
MAX_VALUE_LENGTH = 40

_SECTIONS = (
    "host",
    "gpus",
    "versions",
    "programs",
    "foreign_schedules",
    "foreign_compute",
    "machine_sysctls",
    "clock_source",
    "virtual_time",
)
_READ_BACK = ("sysctls", "offloads")


def caveats(a: Run, b: Run, pairs: Iterable[Pair]) -> list[str]:
    """Return one sentence for each caveat, the most important first; empty if there are none.

    If a run is compared with itself, uncommitted changes are reported once.
    """
    pairs = list(pairs)
    found = (
        _modelled_tcp(a, b)
        + _not_modelled(a, b, pairs)
        + _known_misses(a, b, pairs)
        + _few_repeats(pairs)
        + _overloaded(a, b, pairs)
    )
    found += _faulted(a, b, pairs)
    if a is not b and a.manifest.get("run_id") and a.manifest.get("run_id") == b.manifest.get("run_id"):
        found.append("A and B are copies of one run: that they agree shows nothing.")
    for name, run in (("A", a), ("B", b))[: 1 if a is b else 2]:
        if (run.manifest.get("git") or {}).get("dirty"):
            found.append(f"{name} was run from a checkout with uncommitted changes: no revision reproduces it.")
    found += _prices(a, b, pairs)
    sections: dict[str, list[Difference]] = {}
    for each in differing(_circumstances(a), _circumstances(b)):
        sections.setdefault(each.field.partition(".")[0], []).append(each)
    return found + [_of_section(name, own) for name, own in sections.items()]


def _prices(a: Run, b: Run, pairs: Iterable[Pair]) -> list[str]:
    """Return that costs of A and B are by other prices, if both have some."""
    of_both = all(any(trial.prices is not None for trial in run.trials) for run in (a, b))
    if not of_both or price_fields(a) == price_fields(b) or not any(pair.priced for pair in pairs):
        return []
    return ["A and B have different prices: the costs of each are by its own."]


def _of_section(name: str, found: list[Difference]) -> str:
    """Describe the differences of one section, the first few in full."""
    if len(found) == 1:
        return f"{found[0].field} differs: {found[0].a} in A, {found[0].b} in B."
    only_a, only_b = (all(text == NOT_SET for text in texts) for texts in ([d.b for d in found], [d.a for d in found]))
    lines = []
    for each in found[:MAX_LISTED]:
        a, b = (shortened(value, MAX_VALUE_LENGTH) for value in (each.a, each.b))
        values = a if only_a else b if only_b else f"{a} in A, {b} in B"
        lines.append(f"{each.field.removeprefix(f'{name}.')} ({values})")
    if len(found) > MAX_LISTED:
        lines.append(f"{len(found) - MAX_LISTED} more")
    whose = f"only {'A' if only_a else 'B'} has these {len(found)}" if only_a or only_b else f"{len(found)} differ"
    return f"{name}: {whose}, {list_text(lines)}."


def _circumstances(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    sections = {name: manifest.get(name) for name in _SECTIONS}
    fields = dict(flattened({**sections, **{name: first_point(manifest, name) for name in _READ_BACK}}))
    fields["substrate.kernel"] = (manifest.get("substrate") or {}).get("kernel")
    return {**fields, "git.revision": (manifest.get("git") or {}).get("revision")}


def _few_repeats(pairs: list[Pair]) -> list[str]:
    fewest: dict[str, int] = {}
    for pair in pairs:
        for name, side in (("A", pair.a), ("B", pair.b)):
            if side.repeatable_within is None and 0 < side.repeats < FEWEST_REPEATS:
                fewest[name] = min(side.repeats, fewest.get(name, side.repeats))
    return [
        f"{name} has {count_text(repeats, 'repeat')}: how much repeats differ is not known, set "
        f"repeats: {ENOUGH_REPEATS}."
        for name, repeats in fewest.items()
    ]


def _overloaded(a: Run, b: Run, pairs: list[Pair]) -> list[str]:
    found = []
    sides = (
        ("A", a, {(pair.a.point, pair.a.variant) for pair in pairs}),
        ("B", b, {(pair.b.point, pair.b.variant) for pair in pairs}),
    )
    for name, run, compared in sides:
        loads = [
            (trial.variant, load)
            for trial in run.trials
            if (trial.point, trial.variant) in compared and (load := MachineLoad.of(trial.facts)).saturated
        ]
        if loads:
            variant, load = loads[0]
            found.append(f"{name} was overloaded in {len(loads)} of its trials, first with {variant}: {load.sentence}.")
    return found


def _faulted(a: Run, b: Run, pairs: list[Pair]) -> list[str]:
    """Return a sentence for each pair with failures: iteration times tell nothing of what failures cost."""
    found = []
    for pair in pairs:
        texts = [
            f"{count_text(len(own), 'repeat')} in {name}, {_outcomes_text(own)}"
            for name, run, side in (("A", a, pair.a), ("B", b, pair.b))
            if (own := _faults_of(run, side))
        ]
        if texts:
            where = f"{pair.variant_text}{f' at {pair.point_text}' if pair.point_text else ''}"
            found.append(
                f"{where} had failures ({'; '.join(texts)}): its times are of the iterations that count, and a repeat "
                "that failed has fewer."
            )
    return found


def _faults_of(run: Run, side: Side) -> list[TrialFaults]:
    trials = [trial for trial in run.trials if (trial.point, trial.variant) == (side.point, side.variant)]
    return [faults for trial in trials if (faults := TrialFaults.of(trial.facts)).outcome is not None]


def _outcomes_text(found: list[TrialFaults]) -> str:
    counts = Counter(str(faults.outcome) for faults in found)
    goodputs = [faults.training_goodput for faults in found if faults.training_goodput is not None]
    counted = list_text([f"{count} {outcome}" for outcome, count in counts.items()])
    return f"{counted}{f', training goodput {percent_text(median(goodputs))}' if goodputs else ''}"


def _modelled_tcp(a: Run, b: Run) -> list[str]:
    names = [name for name, run in (("A", a), ("B", b)) if tcp_is_modelled(run.manifest)]
    if not names:
        return []
    return [f"TCP is modelled in {list_text(names)}: the ratio says nothing about a kernel's TCP."]


def _not_modelled(a: Run, b: Run, pairs: list[Pair]) -> list[str]:
    """Return one sentence for each text about settings that simulations do not model, naming the runs it applies to."""
    names: dict[str, list[str]] = {}
    for name, run, sides in (("A", a, [pair.a for pair in pairs]), ("B", b, [pair.b for pair in pairs])):
        text = not_modelled_text(
            each for side in sides for each in of_variant(simulated_without(run.manifest, side.point), side.variant)
        )
        if text:
            names.setdefault(text, []).append(name)
    return [
        f"The simulation of {list_text(own)} does not model {text}: the ratio is valid only without it."
        for text, own in names.items()
    ]


def _known_misses(a: Run, b: Run, pairs: list[Pair]) -> list[str]:
    """Return a sentence for each text about kinds of simulations known to be off, naming the runs it applies to."""
    names: dict[str, list[str]] = {}
    for name, run, sides in (("A", a, [pair.a for pair in pairs]), ("B", b, [pair.b for pair in pairs])):
        compared = {(side.point, side.variant) for side in sides}
        trials = [trial for trial in run.trials if (trial.point, trial.variant) in compared]
        if text := known_misses_text(miss for trial in trials for miss in known_misses_of(trial.facts)):
            names.setdefault(text, []).append(name)
    return [
        f"Simulations in {list_text(own)} are of kinds that are known to be off from virtual time: {text}."
        for text, own in names.items()
    ]
