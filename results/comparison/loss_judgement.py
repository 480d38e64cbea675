"""Judge a pair by what was learnt: as iteration times are judged, and where some trial has no figure.

Chance draws the seed: it decides the weights that a training begins with and the order of what it learns. Repeats with
one seed learn the same, and show only how much the clock differs. So a trial has one figure, the trials of one seed
stand together, and intervals are drawn over seeds (``wanbed.results.metrics.bootstrap``, with seeds in place of
repeats).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wanbed.ground.strict_model import InputError
from wanbed.results.comparison.judgement import Judgement, Metric, PairVerdict, judge
from wanbed.results.comparison.pairing import Pair, Side
from wanbed.results.metrics.bootstrap import FEWEST_REPEATS
from wanbed.results.reading.losses import ClockError, LossTrial, loss_trials
from wanbed.results.reading.run import Run
from wanbed.results.records.schema import HELD_OUT, TRAINING
from wanbed.results.text import count_text, list_text

_SPLIT_NAMES = {HELD_OUT: "held-out loss", TRAINING: "training loss, of which single iterations differ by chance"}


@dataclass(frozen=True)
class LossPair:
    """A pair whose sides hold the figures of a metric in place of times.

    ``trials`` are the numbers of trials of A and of B, of which ``lacking`` have no figure.
    """

    pair: Pair
    lacking: tuple[int, int]
    trials: tuple[int, int]


@dataclass(frozen=True)
class LossPairs:
    """All pairs, and ``notes`` on what their figures are of: which loss, whose clock."""

    pairs: tuple[LossPair, ...]
    notes: tuple[str, ...]


def loss_pairs(
    a: Run, b: Run, pairs: Sequence[Pair], metric: Metric, clocks: tuple[Run | None, Run | None] = (None, None)
) -> LossPairs:
    """Return the pairs of the metric, at each sweep point of the clock.

    The held-out loss counts if every trial has one, else the training loss does. Raise InputError if a run has no
    losses, ClockError if a clock does not fit.
    """
    of_a = loss_trials(a, clocks[0])
    of_b = of_a if a is b and clocks[0] is clocks[1] else loss_trials(b, clocks[1])
    for name, run, found in (("A", a, of_a), ("B", b, of_b)):
        if not found:
            raise InputError(
                f"--metric: {name}, {run.path}, has no losses: only torch learns, and older runs kept none"
            )
    split = HELD_OUT if all(trial.held_out is not None for trial in (*of_a, *of_b)) else TRAINING
    made: list[LossPair] = []
    for pair in pairs:
        sides = [_by_point(found, side) for found, side in ((of_a, pair.a), (of_b, pair.b))]
        if sides[0].keys() != sides[1].keys():
            raise ClockError(
                f"--clock: for {pair.variant_text} A's clock has other sweep points than B's: give one clock for both"
            )
        for key, own in sides[0].items():
            own_b = sides[1][key]
            chosen = [_side(side, trials, split, metric) for side, trials in ((pair.a, own), (pair.b, own_b))]
            made.append(
                LossPair(
                    replace(pair, point=own[0].values, a=chosen[0][0], b=chosen[1][0]),
                    (chosen[0][1], chosen[1][1]),
                    (len(own), len(own_b)),
                )
            )
    return LossPairs(tuple(made), _notes(of_a, of_b, split))


def _by_point(trials: Sequence[LossTrial], side: Side) -> dict[frozenset[tuple[str, str]], list[LossTrial]]:
    found: dict[frozenset[tuple[str, str]], list[LossTrial]] = {}
    for trial in trials:
        if (trial.id.point, trial.variant) == (side.point, side.variant):
            found.setdefault(frozenset(trial.values.items()), []).append(trial)
    return found


def _side(side: Side, trials: Sequence[LossTrial], split: str, metric: Metric) -> tuple[Side, int]:
    """Return the side with the figures of each seed, and the number of trials that have none."""
    of_seeds: dict[int | None, list[float]] = {}
    lacking = 0
    for trial in trials:
        curve = trial.curve(split)
        figure = None
        if curve is not None:
            figure = curve.loss_at(metric.at) if metric.kind == "loss-at" else curve.time_to_s(metric.at)
        if figure is None:
            lacking += 1
        else:
            of_seeds.setdefault(trial.seed, []).append(figure)
    figures = tuple(tuple(values) for values in of_seeds.values())
    # How busy the machine was while it learnt says nothing of a clock of another run.
    saturated = 0 if any(trial.provenance.joined for trial in trials) else side.saturated
    found = replace(
        side,
        times_s=figures,
        exact=False,
        repeatable_within=None,
        saturated=saturated,
        bound=None,
        iterations=sum(map(len, figures)),
    )
    return found, lacking


def _notes(of_a: Sequence[LossTrial], of_b: Sequence[LossTrial], split: str) -> tuple[str, ...]:
    notes = [f"Judged is the {_SPLIT_NAMES[split]}."]
    texts: Mapping[str, list[str]] = {
        name: list(dict.fromkeys(trial.provenance.text for trial in own)) for name, own in (("A", of_a), ("B", of_b))
    }
    if texts["A"] == texts["B"]:
        notes.append(f"A and B: {list_text(texts['A'])}.")
    else:
        notes += [f"{name}: {list_text(own)}." for name, own in texts.items()]
    return tuple(notes)


def judge_loss(found: LossPair, metric: Metric, margin: float, seed: int = 0) -> Judgement:
    """Judge the ratio of the metric's figures if every trial has one, with seeds in place of repeats.

    A loss that only one side ever reached has no ratio. With ``FEWEST_REPEATS`` seeds a side that is a verdict all the
    same: regressed if all of A's trials and none of B's reached it, improved if it is the other way round. Whatever
    else has no figure is no_data.
    """
    if not any(found.lacking):
        return judge(found.pair, margin, None, seed, metric)
    verdict: PairVerdict = "no_data"
    if metric.kind == "time-to" and min(found.trials) >= FEWEST_REPEATS:
        a_none, b_none = (lacking == trials for lacking, trials in zip(found.lacking, found.trials, strict=True))
        if b_none and not found.lacking[0] and found.pair.a.repeats >= FEWEST_REPEATS:
            verdict = "regressed"
        if a_none and not found.lacking[1] and found.pair.b.repeats >= FEWEST_REPEATS:
            verdict = "improved"
    return Judgement(found.pair, None, None, verdict, margin, None, _reading(found, metric))


def _reading(found: LossPair, metric: Metric) -> str:
    missing = [
        f"{lacking} of {count_text(trials, 'trial')} of {name}"
        for name, lacking, trials in zip("AB", found.lacking, found.trials, strict=True)
        if lacking
    ]
    if metric.kind == "time-to":
        return f"{list_text(missing)} never reached a loss of {metric.at:g}: give a higher one, or train longer"
    return (
        f"{list_text(missing)} had no loss at {metric.name.partition(' ')[2]}: it was before the first one, after the "
        "training's end, or the training had diverged"
    )
