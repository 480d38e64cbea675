"""Traces given span by span."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from wanbed.results.records.schema import SPANS

MakeSpans = Callable[..., pd.DataFrame]

_BASE = {
    "rank": 0,
    "host": "east-0",
    "datacenter": "east",
    "gpu": 0,
    "pipeline": 0,
    "stage": 0,
    "iteration": 0,
    "microbatch": 0,
    "size_bytes": 0,
    "peer": "",
    "tensor": "",
    "request": -1,
}


@pytest.fixture(scope="session")
def spans() -> MakeSpans:
    """``spans(("forward", 0, 10, {"host": "west-0"}), ...)``: kind, start and end in nanoseconds, and what differs."""

    def make(*rows: tuple[Any, ...]) -> pd.DataFrame:
        documents = [
            {**_BASE, "kind": kind, "start_ns": start, "end_ns": end, **dict(*more)} for kind, start, end, *more in rows
        ]
        return pd.DataFrame(documents, columns=list({**_BASE, "kind": "", "start_ns": 0, "end_ns": 0})).reindex(
            columns=SPANS.names
        )

    return make
