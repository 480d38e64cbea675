"""Compare runs, or variants of one run, with each other."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from wanbed.api.argument_names import options_as_arguments
from wanbed.ground.errors import InputError
from wanbed.results.comparison.comparison import Comparison, check, load_both, load_clocks, parse_margin
from wanbed.results.comparison.comparison import compare as compare_runs
from wanbed.results.comparison.judgement import ITERATION_TIME, parse_metric
from wanbed.results.reading.run import Run


def compare(
    a: Run | str | PathLike[str],
    b: Run | str | PathLike[str],
    *,
    margin: str = "2%",
    allow: Sequence[str] = (),
    pair: Mapping[str, str] | None = None,
    seed: int = 0,
    metric: str | None = None,
    clock: Run | str | PathLike[str] | Sequence[Run | str | PathLike[str]] = (),
) -> Comparison:
    """Compare the iteration times of run B with those of A, at each sweep point for each variant.

    ``metric`` is what is compared in their place where torch learnt: ``loss-at 60s`` or ``time-to 2.5``. ``clock`` is
    the run, such as a simulation of the same training, that times the losses of both, or a list of two, A's and B's.

    ``margin`` is how much slower is no regression yet. ``allow`` are fields in which the runs may differ. ``pair`` maps
    variants of A to variants of B that have other names; then A and B may be one run. ``seed`` is that of the
    resampling. The comparison has a ``verdict`` and, in ``judgements``, the ratio, interval and verdict of each pair; a
    difference that forbids comparing is a verdict too, with the fields in ``check.refused``. Raise InputError for an
    unknown field or variant, RunError for a folder that is no run.
    """
    with options_as_arguments():
        judged = ITERATION_TIME if metric is None else parse_metric(metric.split())
        timed = [clock] if isinstance(clock, (Run, str, PathLike)) else list(clock)
        if timed and not judged.of_losses:
            raise InputError("--clock: it times losses, give a --metric of losses too, like loss-at 60s")
        checked = check(*load_both(_run(a), _run(b)), names=tuple((pair or {}).items()), allow=allow)
        first, second = load_clocks([_run(each) for each in timed], 2)
        return compare_runs(checked, margin=parse_margin(margin), seed=seed, metric=judged, clocks=(first, second))


def _run(run: Run | str | PathLike[str]) -> Run | Path:
    return run if isinstance(run, Run) else Path(run)
