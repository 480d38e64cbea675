"""Bring tables and documents of earlier schema versions to the current one.

Version 1 had neither ``tensor`` nor ``request`` in the spans, no TCP samples and no prefill requests. Version 2 had
them. Up to version 2 a sweep point was called a cell, and a configured figure of calibration began with ``asked_``.
Up to version 3 a summary, which is not read back, had the swept values in ``sweep_point``; up to version 4 it had no
bound. Up to version 5 a summary's iteration time was the makespan, and a trial's bound was that of the makespan. Up to
version 6, where a manifest did not say its version, ``window`` was a receive buffer, of which the clock decided how
much was in flight.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from wanbed.results.records.span_log import ACTIVATION, GRADIENT, NO_REQUEST

EARLIER_VERSIONS = ("1", "2", "3", "4", "5", "6")

FIRST_VERSION = "1"

SCHEMA_VERSION_KEY = "schema_version"
"""The schema's version in a manifest."""
EARLIER_WINDOW = "receive_buffer"
"""The name of ``window`` in manifests of earlier versions: ``compare`` then tells it from today's."""

EARLIER_POINT_NAME = "cell-"
"""Begins the names of sweep points' folders and files up to version 2."""

_SENDS, _RECEIVES = "send", "receive"
_EARLIER_KEYS = {
    "cell": "sweep_point",
    "cells": "sweep_points",
    "bound": "makespan_bound",
    "planned_iteration_time_s": "planned_makespan_s",
}


def renamed(table: pa.Table) -> pa.Table:
    """Return a table of an earlier version with the columns' current names."""
    return table.rename_columns(
        [
            _EARLIER_KEYS.get(name, f"configured_{name.removeprefix('asked_')}" if name.startswith("asked_") else name)
            for name in table.schema.names
        ]
    )


def upgraded_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest or a trial's facts with the keys' current names."""
    current = {_EARLIER_KEYS.get(key, key): value for key, value in document.items()}
    if "cells" in document and isinstance(document["cells"], list):
        points = document["cells"]
        current["sweep_points"] = [upgraded_document(each) if isinstance(each, dict) else each for each in points]
    if SCHEMA_VERSION_KEY not in document:
        for part in current.keys() & {"experiment", "variants"}:
            current[part] = _with_buffers(current[part])
    return current


def _with_buffers(document: Any) -> Any:
    """Return a part of a manifest in which every ``window`` has the name of what it was."""
    if isinstance(document, Mapping):
        return {EARLIER_WINDOW if key == "window" else key: _with_buffers(each) for key, each in document.items()}
    return [_with_buffers(each) for each in document] if isinstance(document, list) else document


def upgraded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of an earlier version, ``renamed``, as one of ``schema``; if its columns do not fit, as it is.

    Version 1 of the spans did not record which tensor a transfer carried. The host at its other end reveals it, unless
    the previous and the next stage of the pipeline share one; then ``tensor`` is left empty.
    """
    new = ("tensor", "request")
    if "tensor" in schema.names and table.schema.names == [name for name in schema.names if name not in new]:
        table = table.append_column(schema.field("tensor"), pa.array(_tensors(table), pa.string()))
        table = table.append_column(schema.field("request"), pa.array([NO_REQUEST] * len(table), pa.int32()))
    return table.cast(schema) if table.schema.names == schema.names else table


def _tensors(spans: pa.Table) -> list[str]:
    trial = ("sweep_point", "variant", "repeat", "pipeline")
    columns = [spans.column(name).to_pylist() for name in (*trial, "stage", "host", "kind", "peer")]
    rows = list(zip(*columns, strict=True))
    hosts = {(*key, stage): host for *key, stage, host, _, _ in rows}
    tensors = []
    for *key, stage, _, kind, peer in rows:
        before, after = hosts.get((*key, stage - 1)) == peer, hosts.get((*key, stage + 1)) == peer
        if kind not in {_SENDS, _RECEIVES} or before == after:
            tensors.append("")
        else:
            tensors.append(ACTIVATION if (kind == _SENDS) == after else GRADIENT)
    return tensors
