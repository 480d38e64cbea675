"""Compare runs, or variants of one run, with each other."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from results.comparison.compared_runs import load_both, parse_margin
from results.comparison.comparison import Comparison, check
from results.comparison.comparison import compare as compare_runs
from results.reading.run import Run
from wanbed.api.argument_names import options_as_arguments


def compare(
    a: Run | str | PathLike[str],
    b: Run | str | PathLike[str],
    *,
    margin: str = "2%",
    allow: Sequence[str] = (),
    pair: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare the iteration times of run B with those of A, at each sweep point for each variant.

    ``margin`` is how much slower is no regression yet. ``allow`` are fields in which the runs may differ. ``pair`` maps
    variants of A to variants of B that have other names; then A and B may be one run. ``seed`` is that of the
    resampling. The comparison has a ``verdict`` and, in ``judgements``, the ratio, interval and verdict of each pair; a
    difference that forbids comparing is a verdict too, with the fields in ``check.refused``. Raise InputError for an
    unknown field or variant, RunError for a folder that is no run.
    """
    with options_as_arguments():
        checked = check(*load_both(_run(a), _run(b)), names=tuple((pair or {}).items()), allow=allow)
        return compare_runs(checked, margin=parse_margin(margin), seed=seed)


def _run(run: Run | str | PathLike[str]) -> Run | Path:
    return run if isinstance(run, Run) else Path(run)
