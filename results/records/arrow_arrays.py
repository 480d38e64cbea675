"""Make Arrow's arrays of the memory of numpy's, and of texts.

``pyarrow.array`` and ``to_numpy`` would load pandas. That takes longer than a small simulation, and whoever only writes
a trial has no other use for it.
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
    code_of = {value: code for code, value in enumerate(distinct)}
    return pa.DictionaryArray.from_arrays(numbers(np.array([code_of[value] for value in values], np.int32)), plain)


def codes(coded: "pa.DictionaryArray[Any, Any]") -> npt.NDArray[np.int32]:
    """Return the codes of ``texts``."""
    kept = coded.indices.buffers()[1]
    assert kept is not None
    return np.frombuffer(memoryview(kept), np.int32, len(coded))
