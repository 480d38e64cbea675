"""Number the distinct values of a column, numbers or texts; texts may be a categorical."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.intervals import Numbers

MOST_KEYS = 2**20
"""Up to this many values more than a column has entries, a table of all possible values spares sorting the column."""


def numbered(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the distinct values, ascending, and the position of each entry's value among them, as ``np.unique``."""
    if not len(values) or values.min() < 0 or int(values.max()) > len(values) + MOST_KEYS:
        found, positions = np.unique(values, return_inverse=True)
        return found, positions.astype(np.int64)
    occurs = np.zeros(int(values.max()) + 1, bool)
    occurs[values] = True
    return np.flatnonzero(occurs).astype(values.dtype), (np.cumsum(occurs) - 1)[values]


def is_among(texts: "pd.Series[str]", names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return for each text whether it is one of the names."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        return np.append(texts.cat.categories.isin(names), False)[texts.cat.codes.to_numpy()]
    return texts.isin(names).to_numpy(bool)


def text_codes(texts: "pd.Series[str]") -> tuple[Numbers, list[str]]:
    """Return for each text its position among the sorted names, and the names, of which some may not occur."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        names = [str(name) for name in texts.cat.categories]
        codes = texts.cat.codes.to_numpy()
        if names == sorted(names):
            return codes.astype(np.int64), names
    codes, found = pd.factorize(texts.astype("str"), sort=True)
    return codes.astype(np.int64), [str(name) for name in found]
