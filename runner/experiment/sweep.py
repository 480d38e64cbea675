"""Expand a sweep into its sweep points: every combination of the listed values."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from wanbed.ground.strict_model import InputError, prefixed
from wanbed.runner.experiment.field_path import Steps, located, parse_path

MAX_SWEEP_POINTS = 1000
MAX_TRIALS = 100_000
"""The most trials in one run. Each trial is a folder."""

ONE_FOR_THE_RUN = {"name", "traces", "sweep", "repeats", "seed", "engine", "clock", "dilation", "variants"}


def value_text(value: Any) -> str:
    """Return a swept value as tables and charts show it: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def swept_paths(sweep: Mapping[str, Sequence[Any]], document: Mapping[str, Any]) -> dict[str, Steps]:
    """Return the steps of every swept path of ``document``, in alphabetical order of the paths.

    Raise InputError for:

    - a path that does not exist (with the nearest name), or a field that is the same for the whole run;
    - two paths of which one lies inside the other;
    - a value that is listed twice or has unprintable characters;
    - more than ``MAX_SWEEP_POINTS`` sweep points.
    """
    paths: dict[str, Steps] = {}
    for path in sorted(sweep):
        with prefixed(f"sweep: {path}: "):
            paths[path] = _steps(path, sweep[path], paths, document)
    points = prod(len(values) for values in sweep.values())
    if points > MAX_SWEEP_POINTS:
        raise InputError(f"sweep: {points} sweep points, more than the {MAX_SWEEP_POINTS} that one run takes: split it")
    return paths


def _steps(path: str, values: Sequence[Any], earlier_paths: Mapping[str, Steps], document: Mapping[str, Any]) -> Steps:
    steps = parse_path(path)
    place = located(document, steps)
    if steps[0] in ONE_FOR_THE_RUN and (steps[0] != "variants" or len(steps) < 3 or steps[2] == "name"):
        raise InputError("a run has one for all its sweep points, leave it out of the sweep")
    for other, earlier_steps in earlier_paths.items():
        earlier = located(document, earlier_steps)
        if place[: len(earlier)] == earlier or earlier[: len(place)] == place:
            raise InputError(f"is swept by {other} as well, leave one of them out")
    texts = [value_text(value) for value in values]
    for position, text in enumerate(texts):
        if text in texts[:position]:
            raise InputError(f"the value {text!r} is there twice, leave one of them out")
        if not text.isprintable():
            raise InputError(f"the value {text!r} has unprintable characters")
    return steps


def combinations(sweep: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], ...]:
    """Return the values of each sweep point by path.

    The alphabetically last path varies fastest; the values of a path keep the order of the file. The order of the
    paths in the file does not matter, so the index of a sweep point stays the same when the file is written out again.
    Without a sweep there is one sweep point, {}.
    """
    paths = sorted(sweep)
    return tuple(dict(zip(paths, values, strict=True)) for values in product(*(sweep[path] for path in paths)))
