"""Say in one line why a run's figures need care: what happened, where its results are, and what to do."""

from pathlib import Path

from wanbed.results.reading.known_misses import known_misses_of, known_misses_text
from wanbed.results.reading.run import Run
from wanbed.results.reading.summaries.saturation import MachineLoad
from wanbed.results.reading.summaries.ways_around import WaysAround
from wanbed.results.text.number_text import count_text, list_text

_MOST_NAMED = 3


def ending(run: Run, report: Path) -> str | None:
    """Return the line for a run whose links or machine were not as configured, None for a good run.

    Of a simulation it says which trials are of kinds whose simulations are known to be off.
    """
    if run.simulated:
        return _known_to_be_off(run, report)
    facts = [fact for fact in (_links_outside(run), _around(run), _saturated_trials(run)) if fact is not None]
    if not facts:
        return None
    remedy = "run again on a machine that does nothing else, or with lower rates"
    if _goes_in_virtual_time(run):
        remedy = "run again on a machine that does nothing else, with lower rates, or with --clock virtual"
    if run.manifest.get("engine") == "rack":
        remedy = "run again on machines that do nothing else, or with lower rates"
    if run.manifest.get("clock") == "virtual":
        remedy = "compare the links in the report with the file"
    return f"{' and '.join(facts)}: do not compare these figures; {remedy}; report: {report}"


def _goes_in_virtual_time(run: Run) -> bool:
    """Return whether nothing in the run's file is refused in virtual time: programs, what really computes, dilation."""
    written = run.manifest.get("experiment") or {}
    replayed = (written.get("compute") or {}).get("kind", "replay") == "replay"
    as_it_is = written.get("dilation", "auto") in {"auto", 1}
    return replayed and as_it_is and all(trial.program is None for trial in run.trials)


def _known_to_be_off(run: Run, report: Path) -> str | None:
    of_trials = [known_misses_of(trial.facts) for trial in run.trials]
    marked = sum(map(bool, of_trials))
    if not marked:
        return None
    text = known_misses_text(miss for found in of_trials for miss in found)
    return (
        f"{marked} of {count_text(len(of_trials), 'trial')} are of kinds whose simulation is known to be off from "
        f"virtual time: {text}; run with --clock virtual where that matters; report: {report}"
    )


def _links_outside(run: Run) -> str | None:
    rows = run.calibration
    outside = rows[~rows["within_tolerance"].astype(bool)]
    measured = set(rows["sweep_point"])
    unmeasured = {trial.point for trial in run.trials} - measured
    if outside.empty:
        return f"the links of {count_text(len(unmeasured), 'sweep point')} were not measured" if unmeasured else None
    named = dict.fromkeys(
        f"inside {row.source}" if row.scope == "intra" else f"{row.source} to {row.destination}"
        for row in outside.itertuples()
    )
    names = list(named)[:_MOST_NAMED] + ([f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else [])
    points = set(outside["sweep_point"])
    where = f" at {len(points)} of {len(measured)} sweep points" if len(measured) > 1 else ""
    return f"{len(outside)} of {count_text(len(rows), 'link')} outside tolerance{where} ({list_text(names)})"


def _around(run: Run) -> str | None:
    around = [ways for trial in run.trials if (ways := WaysAround.of(trial.facts)).used]
    return f"in {len(around)} of {count_text(len(run.trials), 'trial')} {around[0].sentence}" if around else None


def _saturated_trials(run: Run) -> str | None:
    saturated = [trial for trial in run.trials if MachineLoad.of(trial.facts).saturated]
    if not saturated:
        return None
    variants = list_text(list(dict.fromkeys(trial.variant for trial in saturated)))
    return f"the machine was saturated in {len(saturated)} of {count_text(len(run.trials), 'trial')} ({variants})"
