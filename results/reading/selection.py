"""Select the finished trials of a run, and the parts of them, that a trace or a figure shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, shortened
from wanbed.results.reading.run_documents import read_manifest, read_trials
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.documents import SIMULATE

MAX_CHOICES_LISTED = 20

_NONE_SUCH = "there is none such"


class NoSuchTrialError(InputError):
    """The run has nothing that was selected; the message is one line with what there is to choose."""


class NoTrialsError(ValueError):
    """No trial of the run has finished; the message is one line that starts with the run's path."""


@dataclass(frozen=True)
class Selection:
    """A selection of trials; the default is everything.

    Each entry of ``points`` is a sweep point's index or one of its swept values, ``path=value``. Several indices, or
    several values of one path, are alternatives; different paths all have to hold.
    """

    points: Sequence[str] = ()
    variant: str | None = None
    repeat: int | None = None
    iteration: int | None = None

    def of(
        self, trials: Sequence[StoredTrial], sweep: Mapping[int, Mapping[str, Any]] | None = None
    ) -> list[StoredTrial]:
        """Return the trials selected, in their order; ``sweep`` has the values of all sweep points.

        Raises NoSuchTrialError if there is none.
        """
        unfinished = (
            f"no trial of it has finished, continue the run with {_resuming(trials[0].settings if trials else {})}"
        )
        finished = {trial.point: trial.values for trial in trials}
        all_points = {**(sweep or {}), **finished}
        for wanted in self.points:
            if not any(_is_point(point, values, wanted) for point, values in finished.items()):
                absent = not any(_is_point(point, values, wanted) for point, values in all_points.items())
                text = (f"{point} ({_values_text(values)})" if values else point for point, values in finished.items())
                raise NoSuchTrialError(
                    f"--point {shortened(wanted)}: {_NONE_SUCH if absent else unfinished}, {choices(text)}"
                )
        chosen = [trial for trial in trials if self._selects(trial.point, trial.values)]
        if not chosen:
            if any(self._selects(*point) for point in all_points.items()):
                raise NoSuchTrialError(f"{self._points_text()}: {unfinished}")
            raise NoSuchTrialError(f"{self._points_text()}: no sweep point is all of these, give fewer")
        for option, asked in (("variant", self.variant), ("repeat", self.repeat)):
            there = [getattr(trial, option) for trial in chosen]
            if asked is not None and asked not in there:
                raise NoSuchTrialError(f"--{option} {shortened(str(asked))}: there is none such, {choices(there)}")
            chosen = [trial for trial in chosen if asked is None or getattr(trial, option) == asked]
        return chosen

    def _points_text(self) -> str:
        return f"--point {' --point '.join(map(shortened, self.points))}"

    def _selects(self, point: int, values: Mapping[str, Any]) -> bool:
        alternatives: dict[str, list[str]] = {}
        for wanted in self.points:
            alternatives.setdefault(wanted.partition("=")[0].strip() if "=" in wanted else "", []).append(wanted)
        return all(any(_is_point(point, values, each) for each in group) for group in alternatives.values())


def _is_point(point: int, values: Mapping[str, Any], wanted: str) -> bool:
    path, equals, value = wanted.partition("=")
    if not equals:
        return wanted.strip() == str(point)
    return path.strip() in values and str(values[path.strip()]) == value.strip()


def _values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in values.items())


def choices(values: Iterable[object]) -> str:
    """List what there is to choose, each once, in the given order."""
    lines = [str(value) for value in dict.fromkeys(values)]
    more = f" and {len(lines) - MAX_CHOICES_LISTED} more" if len(lines) > MAX_CHOICES_LISTED else ""
    return f"choose of: {'; '.join(lines[:MAX_CHOICES_LISTED])}{more}" if lines else "there is nothing to choose"


def swept_points(manifest: Mapping[str, Any]) -> dict[int, Mapping[str, str]]:
    """Return the swept values of every sweep point of a run by index, also of those without a finished trial."""
    return {entry["index"]: entry["sweep_point"] for entry in manifest.get("sweep_points", ())}


def finished_trials(run: Path) -> tuple[Mapping[str, Any], list[StoredTrial]]:
    """Return the manifest of a run's folder and its finished trials.

    The trials are ordered by sweep point, variant as the manifest lists them, and repeat. Reads no trace. Raises
    RunError if there is no run or it is damaged, and NoTrialsError if no trial has finished.
    """
    manifest = read_manifest(run)
    trials = read_trials(run, manifest)
    if not trials:
        raise NoTrialsError(f"{run}: {no_trials_text(manifest)}")
    return manifest, trials


def no_trials_text(manifest: Mapping[str, Any]) -> str:
    """Say why a run has no finished trial, and what to do."""
    if manifest.get("complete") is True:
        return "the run is complete, but its folder trials has none: restore that folder, or run again"
    return f"no trial of this run has finished, continue it with {_resuming(manifest)}"


def _resuming(manifest: Mapping[str, Any]) -> str:
    """Return the command that goes on with a run."""
    return f"wanbed {'simulate' if manifest.get('engine') == SIMULATE else 'run'} --resume"
