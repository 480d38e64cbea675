"""Make Arrow's arrays of the memory of numpy's, and of texts.

``pyarrow.array`` would look whether pandas made what it is given. To load pandas takes longer than a small simulation,
and whoever only writes a trial has no other use for it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> "pa.Array[Any]":
    """Return numbers as an array, null where they are ``missing``."""
    kept = np.ascontiguousarray(values)
    present = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little").data)
    return pa.Array.from_buffers(pa.from_numpy_dtype(kept.dtype), len(kept), [present, pa.py_buffer(kept.data)])


def texts(values: Sequence[str]) -> "pa.DictionaryArray[Any, Any]":
    """Return texts as codes into their sorted, distinct texts: rows are taken of them sooner than of texts."""
    distinct = sorted(set(values))
    encoded = [value.encode() for value in distinct]
    ends = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=ends[1:])
    plain = pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends.data), pa.py_buffer(b"".join(encoded)))
    codes = {value: code for code, value in enumerate(distinct)}
    return pa.DictionaryArray.from_arrays(numbers(np.array([codes[value] for value in values], np.int32)), plain)
