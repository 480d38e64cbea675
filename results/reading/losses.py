"""Read the losses of a run's trials over their clock, which may be that of another run of the same training.

The k-th loss of a trial is at the end of iteration k on the joined clock. A trial is joined with the clock's trial of
the same variant at each sweep point that has all its swept values. The clock may sweep more, but only the network,
below ``topology``: the network changes when something is learnt, and not what. A repeat is joined with the clock's
repeat of the same number, or with its only one.

Two figures are read from the course of a loss. With t(k) the time from the start of the first iteration to the end of
iteration k, and l(k) its loss:

    loss at T    = l(k) of the last k with t(k) <= T
    time to L    = t(k) of the first k with l(k) <= L

Both are steps: nothing is interpolated, so that an evaluation every N iterations finds a loss up to N iterations late,
for all that are compared alike.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.ground.errors import InputError, one_line
from wanbed.results.metrics.iterations import NS_PER_S, iteration_windows
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, point_text
from wanbed.results.reading.trial_rows import counted_windows, rows_by_trial
from wanbed.results.records.schema import HELD_OUT, SPLITS, TRAINING
from wanbed.results.records.trial_id import TrialId

Numbers = npt.NDArray[np.float64]

Iterations = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LossCurve:
    """The losses of one trial: entry i is that after iteration ``iterations[i]``, which rise.

    ``time_s`` is since the start of the first iteration. ``tokens`` and ``wan_bytes`` are those of all iterations up to
    that one, None if they are not known. ``end_s`` is when training ended: beyond it the curve says nothing. Raise
    ValueError if lengths differ, or iterations do not rise.
    """

    iterations: Iterations
    loss: Numbers
    time_s: Numbers
    end_s: float
    tokens: Numbers | None = None
    wan_bytes: Numbers | None = None

    def __post_init__(self) -> None:
        for values in (self.loss, self.time_s, self.tokens, self.wan_bytes):
            if values is not None and len(values) != len(self.iterations):
                raise ValueError(f"{len(values)} values for {len(self.iterations)} iterations")
        if np.any(np.diff(self.iterations) <= 0):
            raise ValueError("iterations do not rise")

    def loss_at(self, time_s: float) -> float | None:
        """Return the loss at that time; None before the first loss and after the training."""
        if time_s > self.end_s:
            return None
        found = _step_at(self.time_s, self.loss, np.array([time_s]))[0]
        return None if np.isnan(found) else float(found)

    def time_to_s(self, loss: float) -> float | None:
        """Return when that loss was first reached; None if it never was."""
        reached = np.flatnonzero(self.loss <= loss)
        return float(self.time_s[reached[0]]) if len(reached) else None


def _step_at(x: Numbers, y: Numbers, at: Numbers) -> Numbers:
    """Return the last y whose x is not beyond each of ``at``; NaN before the first. ``x`` must not fall.

    At iterations that end at the same x, the last one counts.
    """
    position = np.searchsorted(x, at, side="right") - 1
    return np.where(position >= 0, y[np.maximum(position, 0)], np.nan)


def counted_until(
    time_ns: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], at_ns: npt.NDArray[np.int64]
) -> Numbers:
    """Return what a counter that was read now and then stood at, between two readings in proportion to the time.

    With readings c(a) and c(b) around t it is ``c(a) + (c(b) - c(a)) (t - a) / (b - a)``; before the first reading and
    after the last one that reading itself. ``time_ns`` must rise.
    """
    return np.interp(at_ns.astype(np.float64), time_ns.astype(np.float64), counts.astype(np.float64))


ClockKind = Literal["measured", "virtual", "simulated"]

_CLOCK_WORDS: dict[ClockKind, str] = {
    "measured": "clock measured",
    "virtual": "clock of virtual time",
    "simulated": "clock simulated",
}


@dataclass(frozen=True)
class Provenance:
    """The sources of losses and their clock. ``clock_run`` is the run of the clock, "" if that is the losses' run."""

    clock: ClockKind
    clock_run: str = ""

    @property
    def joined(self) -> bool:
        """Tell whether losses and clock are of two runs."""
        return bool(self.clock_run)

    @property
    def text(self) -> str:
        """The provenance for readers: ``losses measured, clock simulated (run X)``."""
        if not self.joined:
            return "losses and clock measured"
        return f"losses measured, {_CLOCK_WORDS[self.clock]} (run {self.clock_run})"


@dataclass(frozen=True, eq=False)
class TrialClock:
    """The end of each of ``iterations``, which rise, in nanoseconds since the start of the first iteration.

    ``wan_bytes`` are the bytes that had crossed the WAN since then, headers included; None if no link was sampled.
    """

    iterations: Iterations
    end_ns: Iterations
    wan_bytes: Numbers | None

    def has(self, iterations: Iterations) -> npt.NDArray[np.bool_]:
        """Return which of these iterations it has."""
        return np.isin(iterations, self.iterations)

    def time_s(self, iterations: Iterations) -> Numbers:
        """Return when these iterations ended, in seconds. It must have them."""
        return self.end_ns[np.searchsorted(self.iterations, iterations)] / NS_PER_S

    def crossed_bytes(self, iterations: Iterations) -> Numbers | None:
        """Return what had crossed the WAN when these iterations ended. It must have them."""
        return None if self.wan_bytes is None else self.wan_bytes[np.searchsorted(self.iterations, iterations)]


TOPOLOGY = "topology."


class ClockError(InputError):
    """The clock of one run does not fit the losses of another. The message is one line that names both."""


@dataclass(frozen=True)
class LossTrial:
    """The losses of one trial, over one clock.

    ``id`` is the trial that learnt; ``point`` and ``values`` are the clock's sweep point. ``seed`` is the seed of the
    weights and tokens, None if the run does not record it. ``training`` has the loss of each iteration before its
    update: the mean over the replicas of the mean loss of their sequences. ``held_out`` is the mean over the replicas
    of their held-out losses, None if the trial was not evaluated.
    """

    id: TrialId
    point: int
    values: Mapping[str, str]
    seed: int | None
    training: LossCurve
    held_out: LossCurve | None
    provenance: Provenance

    def curve(self, split: str) -> LossCurve | None:
        """Return the curve of one of the splits."""
        return self.held_out if split == HELD_OUT else self.training

    @property
    def variant(self) -> str:
        """The name of its variant."""
        return self.id.variant

    @property
    def repeat(self) -> int:
        """The number of its repeat."""
        return self.id.repeat

    @property
    def where(self) -> str:
        """The swept values for readers."""
        return point_text(self.values)


def loss_trials(run: Run, clock: Run | None = None) -> list[LossTrial]:
    """Return every trial of a run that learnt, over its own clock or that of the run ``clock``.

    The order is that of the run's trials, and for each that of the clock's sweep points. Raise ClockError if ``clock``
    has no trial of the same training for one of them, or if nothing was learnt.
    """
    losses = rows_by_trial(run.losses)
    learnt = [trial for trial in run.trials if trial.id in losses]
    if clock is not None and not learnt:
        raise ClockError(f"--clock: {run.path} has no losses to time: only torch learns, give a run of it")
    found: list[LossTrial] = []
    clocks: dict[TrialId, TrialClock] = {}
    for trial in learnt:
        timed = [trial] if clock is None else _clock_trials(run, trial, clock)
        for own in timed:
            source = run if clock is None else clock
            if own.id not in clocks:
                clocks[own.id] = _trial_clock(source, own)
            provenance = Provenance(_clock_kind(source), "" if clock is None else clock.path.name)
            curves = _curves(run, trial, losses[trial.id], clocks[own.id], provenance)
            seed = trial.facts.get("learning_seed")
            held_out = curves.get(HELD_OUT)
            found.append(LossTrial(trial.id, own.point, own.values, seed, curves[TRAINING], held_out, provenance))
    return found


def _curves(
    run: Run, trial: StoredTrial, rows: pd.DataFrame, clock: TrialClock, provenance: Provenance
) -> dict[str, LossCurve]:
    """Return the curve of each split that the trial has; whatever learns has that of its training."""
    curves: dict[str, LossCurve] = {}
    for split in (TRAINING, HELD_OUT):
        own = rows[(rows["split"] == split).to_numpy(bool)]
        if not own.empty:
            # Without skipping NaN: of replicas of which one has diverged there is no mean.
            means = own.groupby("iteration")["loss"].agg(lambda losses: losses.mean(skipna=False)).sort_index()
            curves[split] = _curve(run, trial, means, clock, provenance)
    return curves


def _curve(
    run: Run, trial: StoredTrial, means: "pd.Series[float]", clock: TrialClock, provenance: Provenance
) -> LossCurve:
    known = means[clock.has(means.index.to_numpy(np.int64))]
    if provenance.joined and len(known) < len(means):
        raise ClockError(
            f"--clock: {run.path}: {trial.title} has losses of {len(means)} iterations, of which the clock "
            f"({provenance.clock_run}) has {len(known)}: give a clock of as many iterations"
        )
    iterations = known.index.to_numpy(np.int64)
    per_iteration = trial.settings.get("tokens_per_iteration")
    return LossCurve(
        iterations=iterations,
        loss=np.asarray(known, np.float64),
        time_s=clock.time_s(iterations),
        end_s=float(clock.end_ns[-1]) / NS_PER_S if len(clock.end_ns) else 0.0,
        tokens=None if per_iteration is None else (iterations + 1.0) * per_iteration,
        wan_bytes=clock.crossed_bytes(iterations),
    )


def _clock_trials(run: Run, trial: StoredTrial, clock: Run) -> list[StoredTrial]:
    """Return the clock's trials that time this one, one a sweep point."""
    here = f"--clock: {one_line(str(clock.path))} does not time {one_line(trial.title)} of {one_line(str(run.path))}"
    own = run.values(trial.point)
    if trial.variant not in clock.variants:
        raise ClockError(f"{here}: it has no such variant, simulate the same file")
    points = dict.fromkeys(each.point for each in clock.trials if each.variant == trial.variant)
    fitting = [point for point in points if _fits(own, clock.values(point))]
    if not fitting:
        raise ClockError(f"{here}: it has no sweep point of these values that differs in topology alone")
    found = []
    for point in fitting:
        fields = _training_fields(run, trial.point, trial.variant), _training_fields(clock, point, trial.variant)
        shared = fields[0].keys() & fields[1].keys()
        if difference := _first_difference(*({name: each[name] for name in each if name in shared} for each in fields)):
            raise ClockError(f"{here}: {difference}")
        repeats = {each.repeat: each for each in clock.trials if (each.point, each.variant) == (point, trial.variant)}
        timed = repeats.get(trial.repeat) or (next(iter(repeats.values())) if len(repeats) == 1 else None)
        if timed is None:
            raise ClockError(f"{here}: it has {len(repeats)} repeats, give a clock with one, or with as many")
        found.append(timed)
    return found


def _fits(own: Mapping[str, str], clock: Mapping[str, str]) -> bool:
    same = all(clock.get(path) == value for path, value in own.items())
    return same and all(path.startswith(TOPOLOGY) for path in clock if path not in own)


def _clock_kind(run: Run) -> ClockKind:
    """Return what kind of clock a run's times are of."""
    if run.simulated:
        return "simulated"
    return "virtual" if run.manifest.get("clock") == "virtual" else "measured"


def _trial_clock(run: Run, trial: StoredTrial) -> TrialClock:
    """Return the clock of a trial; without iterations if it has no span."""
    spans, samples = run.rows[trial.id].spans, run.rows[trial.id].link_samples
    windows = counted_windows(trial, iteration_windows(spans))
    if windows.empty:
        return TrialClock(np.empty(0, np.int64), np.empty(0, np.int64), None)
    start_ns = int(windows["start_ns"].min())
    end_ns = windows["end_ns"].to_numpy(np.int64)
    links = samples[(samples["scope"] == "link").to_numpy(bool)]
    crossed: Numbers | None = None
    if not links.empty:
        crossed = np.zeros(len(end_ns))
        at_ns = np.append(start_ns, end_ns)
        for _, own in links.sort_values("time_ns", kind="stable").groupby(["source", "destination"], observed=True):
            counts = counted_until(own["time_ns"].to_numpy(np.int64), own["wire_bytes"].to_numpy(np.int64), at_ns)
            crossed += counts[1:] - counts[0]
    elif spans["datacenter"].nunique() == 1:
        crossed = np.zeros(len(end_ns))
    return TrialClock(windows.index.to_numpy(np.int64), end_ns - start_ns, crossed)


_OF_TRAINING = ("iterations", "precision")

_OF_VARIANT = ("schedule", "options")

_OF_ENCODING = ("wire", "kept_of_1024", "error_feedback", "boundaries")


def _training_fields(run: Run, point: int, variant: str) -> dict[str, Any]:
    """Return what decides what is trained, and in what steps, by the paths of the experiment file.

    Where it trains and over what network, what its text is, and how it is evaluated, are not among them.
    """
    manifest = run.manifest
    experiment = manifest.get("experiment") or {}
    entry: Mapping[str, Any] = next(
        (each for each in manifest.get("sweep_points") or () if each.get("index") == point), {}
    )
    resolved = (entry.get("variants") or {}).get(variant) or {}
    encoded = resolved.get("activation") or {}
    written: Mapping[str, Any] = next(
        (each for each in experiment.get("variants") or () if each.get("name") == variant), {}
    )
    training = experiment.get("training") or {}
    placement = resolved.get("placement") or []
    fields = {
        **{f"training.{name}": training.get(name) for name in _OF_TRAINING},
        "training.pipelines": len(placement),
        "training.stages": len(placement[0]) if placement else 0,
        "training.microbatches": resolved.get("microbatches"),
        "training.virtual_stages": resolved.get("virtual_stages", 1),
        **{f"variants.transport.activation.{name}": encoded.get(name) for name in _OF_ENCODING},
        **{f"variants.{name}": written.get(name) for name in _OF_VARIANT},
        **_model_fields(experiment.get("model")),
    }
    # A swept path has the same value in both: points are joined by it.
    swept = entry.get("sweep_point") or {}
    return {name: value for name, value in fields.items() if not _swept(name, swept)}


def _model_fields(model: object) -> dict[str, Any]:
    if isinstance(model, Mapping):
        return {f"model.{name}": value for name, value in model.items()}
    return {"model": model}


def _swept(field: str, paths: Mapping[str, str]) -> bool:
    return any(field == path or field.startswith(f"{path}.") for path in paths)


def _first_difference(losses: Mapping[str, Any], clock: Mapping[str, Any]) -> str:
    """Return the first field that differs, as ``training.iterations: 100, the clock's 50``; "" if none does."""
    for field in dict.fromkeys((*losses, *clock)):
        one, other = losses.get(field) or None, clock.get(field) or None
        if one != other:
            return f"{field}: {_text(one)}, and {_text(other)} in the run of the clock"
    return ""


def _text(value: object) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


COLUMNS = (
    "variant",
    "repeat",
    "seed",
    "split",
    "iteration",
    "loss",
    "time_s",
    "tokens",
    "wan_bytes",
    "clock",
    "clock_run",
)
"""The columns that follow those of the swept paths."""


def loss_frame(run: Run, clock: Run | None = None) -> pd.DataFrame:
    """Return a row for each loss of each trial, the mean over its replicas, in the order of ``loss_trials``.

    A column for each swept path of the clock's sweep point stands first, with the values as the file has them.
    ``clock`` is measured, virtual or simulated, and ``clock_run`` the folder's name of its run, "" for the own one.
    Raise as ``loss_trials`` does.
    """
    trials = loss_trials(run, clock)
    swept = list(dict.fromkeys(path for trial in trials for path in trial.values))
    frames = [
        _rows(trial, split, curve, swept)
        for trial in trials
        for split in SPLITS
        if (curve := trial.curve(split)) is not None
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*swept, *COLUMNS])


def _rows(trial: LossTrial, split: str, curve: LossCurve, swept: list[str]) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "variant": trial.variant,
        "repeat": trial.repeat,
        "seed": trial.seed,
        "split": split,
        "iteration": curve.iterations,
        "loss": curve.loss,
        "time_s": curve.time_s,
        "tokens": nan if curve.tokens is None else curve.tokens,
        "wan_bytes": nan if curve.wan_bytes is None else curve.wan_bytes,
        "clock": trial.provenance.clock,
        "clock_run": trial.provenance.clock_run,
    }
    return pd.DataFrame({**{path: trial.values.get(path, "") for path in swept}, **columns})
