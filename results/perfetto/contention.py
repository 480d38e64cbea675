"""Compute how long each span of a trace was contended, if several ranks computed on one device."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wanbed.results.perfetto.trial_tables import Spans
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL

_COMPUTED = (*COMPUTE_KINDS, PREFILL)


def contention_of(spans: Spans, facts: Mapping[str, Any]) -> Column:
    """Return ``wanbed.results.metrics.contended_ns`` of every span, by the trial's facts; 0 if it computes nothing."""
    contended = np.zeros(len(spans), np.int64)
    if not (facts.get("devices") or facts.get("gpu_assignment")):
        return contended
    # Metrics import pandas, which takes longer than writing the trace of a run that does not need them.
    from wanbed.results.metrics import contended_ns, devices_of_seats  # noqa: PLC0415

    devices = devices_of_seats(facts)
    names = {device: number for number, device in enumerate(sorted(set(devices.values())))}
    gpus = int(spans.gpu.max(initial=0)) + 1
    seat = spans.host.codes * gpus + spans.gpu
    of_seat = np.full(len(spans.host.values) * gpus, -1, np.int64)
    for position, host in enumerate(spans.host.values):
        for gpu in range(gpus):
            if (device := devices.get((host, gpu))) is not None:
                of_seat[position * gpus + gpu] = names[device]
    device_of_span = of_seat[seat]
    own = (spans.kind.mapped(lambda kind: int(kind in _COMPUTED)) == 1) & (device_of_span >= 0)
    contended[own] = contended_ns(device_of_span[own], seat[own], spans.start_ns[own], spans.end_ns[own])
    return contended
