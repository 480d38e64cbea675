"""Judge a pair by what was learnt: as iteration times are judged, and where some trial has no figure."""

from wanbed.results.comparison.judgement import Judgement, PairVerdict, judge
from wanbed.results.comparison.loss_pairs import LossPair
from wanbed.results.comparison.metric import Metric
from wanbed.results.metrics.bootstrap import FEWEST_REPEATS
from wanbed.results.text import count_text, list_text


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
