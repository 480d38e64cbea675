"""Measure the cost of sharing one device: one real GPU computes for several GPUs of emulated hosts at the same time.

A seat is one GPU of an emulated host; several seats may be on one device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wanbed.results.metrics.gpu_time import Gpus
from wanbed.results.metrics.intervals import CoveredTime, GroupedIntervals, Numbers
from wanbed.results.metrics.iterations import Window
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL

Seat = tuple[str, int]
"""A GPU of an emulated host: (host, gpu)."""


def devices_of_seats(facts: Mapping[str, Any]) -> dict[Seat, str]:
    """Return the device of each seat, from a trial's facts. Empty if no seat has a device.

    It is the device that the seat's rank reported, or else the device that was assigned to the host.
    """
    assigned = {(str(each["host"]), int(each["gpu"])): str(each["uuid"]) for each in facts.get("gpu_assignment") or ()}
    reported = {(str(each["host"]), int(each["gpu"])): str(each["device"]) for each in facts.get("devices") or ()}
    return assigned | reported


def contended_ns(device: Numbers, seat: Numbers, start_ns: Numbers, end_ns: Numbers) -> Numbers:
    """Return for each span how long another seat computed on the same device during the span, in nanoseconds.

    All four arguments are columns with one entry per computation. Devices and seats are numbered from 0; times must not
    be negative. Spans of the same seat do not contend with each other. Takes O(n log n) time.
    """
    if not len(start_ns):
        return np.zeros(0, np.int64)
    # Cut each seat's spans into disjoint pieces, so that each seat counts at most once at any moment.
    place = device * (int(seat.max()) + 1) + seat
    pieces = GroupedIntervals.of(place, start_ns, end_ns)
    begin_ns = np.maximum(pieces.start, pieces.before)
    lasting = pieces.end > begin_ns
    on_device, begin_ns, until_ns = (column[lasting] for column in (device[pieces.order], begin_ns, pieces.end))
    if not len(begin_ns):
        return np.zeros(len(start_ns), np.int64)
    moments = np.concatenate((begin_ns, until_ns))
    of_device = np.concatenate((on_device, on_device))
    change = np.concatenate((np.ones(len(begin_ns), np.int64), np.full(len(until_ns), -1)))
    order = np.lexsort((moments, of_device))
    moments, of_device = moments[order], of_device[order]
    # The number of seats that compute from each moment to the next. It returns to 0 at the end of each device.
    computing = np.cumsum(change[order])
    several = np.flatnonzero(computing[:-1] > 1)
    shared = GroupedIntervals.of(of_device[several], moments[several], moments[several + 1])
    contended: Numbers = CoveredTime(shared, int(end_ns.max())).between(device, start_ns, end_ns)
    return contended


def contention_of_spans(spans: pd.DataFrame, devices: Mapping[Seat, str]) -> pd.DataFrame:
    """Return a row for each training or prefill computation on one of these devices, with the index of its span.

    Columns: ``device``, ``rank``, ``kind``, ``start_ns``, ``end_ns``, and ``contended_ns`` as returned by the function
    ``contended_ns``.
    """
    computes = spans[spans["kind"].isin((*COMPUTE_KINDS, PREFILL)).to_numpy(bool)]
    gpus = Gpus.of(computes)
    of_gpus = [devices.get((str(host), int(gpu)), "") for host, gpu in gpus.index]
    codes, names = pd.factorize(np.array(of_gpus, object), sort=True)
    known = np.array([name != "" for name in of_gpus], bool)[gpus.of_span] if of_gpus else np.zeros(0, bool)
    own = computes[known]
    seat = gpus.of_span[known]
    device = codes.astype(np.int64)[seat]
    start_ns, end_ns = (own[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    columns = {name: own[name] for name in ("rank", "kind", "start_ns", "end_ns")}
    computations = pd.DataFrame({"device": np.asarray(names, object)[device], **columns}, index=own.index)
    computations["contended_ns"] = contended_ns(device, seat, start_ns, end_ns)
    return computations


@dataclass(frozen=True)
class DeviceContention:
    """The effect that several seats on one device had on each other within a window.

    ``busy_ns`` is the length of the union of the device's compute spans, up to the window's end. ``computed_ns`` is the
    sum of the spans' lengths; during ``contended_ns`` of it another seat computed too.

    ``slowdown`` compares each contended span with the median length of the uncontended spans of the same rank and
    kind; it is the median of these ratios, and None if either sort of span is missing. A span counts as contended if
    any part of it was. The slowdown is an upper bound: a span that is long for another reason is more likely to be
    contended.
    """

    device: str
    seats: int
    spans: int
    contended_spans: int
    busy_ns: int
    computed_ns: int
    contended_ns: int
    slowdown: float | None

    @property
    def contended_share(self) -> float:
        """The contended share of the compute time, a fraction."""
        return self.contended_ns / self.computed_ns if self.computed_ns else 0.0


def device_contention(spans: pd.DataFrame, devices: Mapping[Seat, str], window: Window) -> list[DeviceContention]:
    """Return the contention of each device with a compute span that began within the window, sorted by device name."""
    computations = contention_of_spans(spans, devices)
    begun = computations["start_ns"].between(window.start_ns, window.end_ns, inclusive="left").to_numpy(bool)
    within = computations[begun]
    seats = pd.Series(devices, dtype=object).value_counts()
    return [
        _of_device(str(device), int(seats[device]), own, window.end_ns)
        for device, own in within.groupby("device", sort=True)
    ]


def _of_device(device: str, seats: int, own: pd.DataFrame, until_ns: int) -> DeviceContention:
    start_ns = own["start_ns"].to_numpy(np.int64)
    end_ns = np.minimum(own["end_ns"].to_numpy(np.int64), until_ns)
    length_ns = own["end_ns"] - own["start_ns"]
    contended = own["contended_ns"] > 0
    alone_ns = length_ns[~contended].groupby([own["rank"][~contended], own["kind"][~contended]], observed=True).median()
    keys = pd.MultiIndex.from_frame(own.loc[contended, ["rank", "kind"]])
    expected_ns = alone_ns.reindex(keys).to_numpy(float)
    ratios = length_ns[contended].to_numpy(float) / np.where(expected_ns > 0, expected_ns, np.nan)
    ratios = ratios[~np.isnan(ratios)]
    return DeviceContention(
        device=device,
        seats=seats,
        spans=len(own),
        contended_spans=int(contended.sum()),
        busy_ns=int(GroupedIntervals.of(np.zeros(len(own), np.int64), start_ns, end_ns).covered(1)[0]),
        computed_ns=int(length_ns.sum()),
        contended_ns=int(own["contended_ns"].sum()),
        slowdown=float(np.median(ratios)) if len(ratios) else None,
    )
