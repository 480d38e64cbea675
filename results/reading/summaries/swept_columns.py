"""Give every swept path a column of its own, which data frames sort, group and pivot in the order of the sweep."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pandas as pd

from wanbed.results.reading.stored_trial import swept_values


def swept_columns(manifest: Mapping[str, Any], points: Sequence[int]) -> pd.DataFrame:
    """Return a column for each swept path of a run, with a row for each of ``points``.

    A path of which all values are numbers has a column of numbers. Any other has an ordered categorical of the values
    as text, in the order of the sweep, because as plain text 10ms would come before 5ms.
    """
    swept: dict[str, list[str]] = {}
    for entry in manifest.get("sweep_points", ()):
        for path, text in entry["sweep_point"].items():
            swept.setdefault(path, []).append(text)
    rows = [swept_values(manifest, point) for point in points]
    return pd.DataFrame(
        {path: _column([row.get(path) for row in rows], list(dict.fromkeys(swept[path]))) for path in swept},
        index=range(len(rows)),
    )


def _column(texts: Sequence[str | None], in_order: Sequence[str]) -> "pd.Series[Any]":
    numbers = {text: _number(text) for text in in_order}
    if None not in numbers.values():
        return pd.Series([None if text is None else numbers[text] for text in texts])
    return pd.Series(texts, dtype=pd.CategoricalDtype(pd.Index(in_order), ordered=True))


def _number(text: str) -> float | int | None:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None
    return value if type(value) in {int, float} else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
