"""Measure how long GPUs computed, and how long they were idle."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.intervals import GroupedIntervals, Numbers, is_among, numbered, text_codes
from wanbed.results.metrics.iterations import Window
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL


@dataclass(frozen=True)
class Gpus:
    """The numbered GPUs of a trial: every GPU that has a span of any kind.

    ``of_span`` is the number of each span's GPU; ``index`` holds (host, gpu) of each number.
    """

    of_span: Numbers
    index: pd.MultiIndex

    @classmethod
    def of(cls, spans: pd.DataFrame) -> "Gpus":
        """Return the GPUs of these spans, sorted by host and index."""
        hosts, names = text_codes(spans["host"])
        gpus = spans["gpu"].to_numpy(np.int64)
        per_host = int(gpus.max(initial=0)) + 1
        keys, of_span = numbered(hosts * per_host + gpus)
        hosts_of_keys = [names[host] for host in (keys // per_host).tolist()]
        return cls(of_span, pd.MultiIndex.from_arrays([hosts_of_keys, keys % per_host], names=["host", "gpu"]))


def spans_of_training_gpus(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the spans of the GPUs that train. GPUs that only prefill, those of a dedicated pool, are left out."""
    prefilling = is_among(spans["kind"], (PREFILL,))
    if not prefilling.any():
        return spans
    gpus = Gpus.of(spans)
    trains = np.zeros(len(gpus.index), bool)
    trains[gpus.of_span[~prefilling]] = True
    own: pd.DataFrame = spans[trains[gpus.of_span]]
    return own


@dataclass(frozen=True)
class GpuWindows:
    """The time windows in which several GPUs were measured. Both fields have an entry for each GPU.

    In a window of whole iterations a GPU is measured from the end of its own computation before the first of them, for
    as long as the window lasts. GPUs begin and end an iteration at different times. So for each GPU the whole work of
    these iterations counts, and no other work. A GPU that has fallen behind is measured until it has computed the last
    of them.
    """

    start_ns: Numbers
    end_ns: Numbers

    @classmethod
    def of(cls, gpus: Gpus, spans: pd.DataFrame, window: Window) -> "GpuWindows":
        """Return the windows of the GPUs, whose spans these are."""
        start_ns, end_ns = (np.full(len(gpus.index), edge_ns) for edge_ns in (window.start_ns, window.end_ns))
        if window.iterations is None:
            return cls(start_ns, end_ns)
        computing = is_among(spans["kind"], COMPUTE_KINDS)
        iteration = spans["iteration"].to_numpy(np.int64)
        for edge_ns, until in ((start_ns, window.iterations.start), (end_ns, window.iterations.stop)):
            chosen = computing & (iteration < until)
            last_ns = np.full(len(gpus.index), -1)
            np.maximum.at(last_ns, gpus.of_span[chosen], spans["end_ns"].to_numpy(np.int64)[chosen])
            edge_ns[last_ns >= 0] = last_ns[last_ns >= 0]
        return cls(start_ns, np.maximum(start_ns + window.length_ns, end_ns))

    @property
    def length_ns(self) -> Numbers:
        """End minus start of each."""
        return self.end_ns - self.start_ns

    def clipped(self, spans: pd.DataFrame, gpu: Numbers) -> tuple[Numbers, Numbers]:
        """Return start and end of spans, each within the window of its GPU. ``gpu`` are the GPUs' numbers."""
        starts_ns, ends_ns = (
            np.clip(spans[name].to_numpy(np.int64), self.start_ns[gpu], self.end_ns[gpu])
            for name in ("start_ns", "end_ns")
        )
        return starts_ns, ends_ns


def gpu_busy(spans: pd.DataFrame, window: Window, *, with_prefill: bool = False) -> pd.DataFrame:
    """Return busy and idle time of every training GPU in the window: integer columns busy_ns, idle_ns by (host, gpu).

    Busy is the length of the union of the GPU's compute spans, clipped to its ``GpuWindows``; ``with_prefill`` includes
    its prefill spans. Idle is the rest: the two add up to the length of its window exactly. Busy means that the GPU had
    work, not that all its multiprocessors had. A training GPU is one that has a span of another kind than prefill.
    """
    own = spans_of_training_gpus(spans)
    gpus = Gpus.of(own)
    windows = GpuWindows.of(gpus, own, window)
    busy_ns = _covered(own, gpus, (*COMPUTE_KINDS, PREFILL) if with_prefill else COMPUTE_KINDS, windows)
    return pd.DataFrame({"busy_ns": busy_ns, "idle_ns": windows.length_ns - busy_ns}, index=gpus.index)


def prefill_ns(spans: pd.DataFrame, window: Window) -> "pd.Series[int]":
    """Return how long each training GPU prefilled within the window while it did not train, in ns by (host, gpu).

    It is ``gpu_busy``'s busy_ns with prefill minus busy_ns without it.
    """
    if not _prefills(spans):
        return pd.Series(0, index=Gpus.of(spans).index)
    return gpu_busy(spans, window, with_prefill=True)["busy_ns"] - gpu_busy(spans, window)["busy_ns"]


def _covered(spans: pd.DataFrame, gpus: Gpus, kinds: Sequence[str], windows: GpuWindows) -> Numbers:
    """Return the length of the union of each GPU's spans of these kinds within its window."""
    own = is_among(spans["kind"], kinds)
    start_ns, end_ns = (each[own] for each in windows.clipped(spans, gpus.of_span))
    return GroupedIntervals.of(gpus.of_span[own], start_ns, end_ns).covered(len(gpus.index))


def prefill_gpu_time_ns(spans: pd.DataFrame, window: Window) -> int:
    """Return how long GPUs prefilled within the window: the sum over all GPUs, those of a pool included."""
    own = spans[(spans["kind"] == PREFILL).to_numpy(bool)]
    gpus = Gpus.of(own)
    return int(_covered(own, gpus, (PREFILL,), GpuWindows.of(gpus, own, window._replace(iterations=None))).sum())


def gpu_utilization(busy: pd.DataFrame) -> float | None:
    """Return busy / (busy + idle) of all GPUs together, a fraction; ``busy`` is ``gpu_busy`` of the measured window.

    None if there is no GPU or the window is empty.
    """
    busy_ns, idle_ns = int(busy["busy_ns"].sum()), int(busy["idle_ns"].sum())
    return busy_ns / (busy_ns + idle_ns) if busy_ns + idle_ns else None


def gpu_utilizations(spans: pd.DataFrame, window: Window) -> tuple[float | None, float | None]:
    """Return the share of GPUs x window in which training's GPUs computed for it, and that with prefill.

    In a window of whole iterations that is their whole work, over as many periods. Prefill adds the share that it has
    of the time for which GPUs are watched. None if there is no GPU or the window is empty.
    """
    busy = gpu_busy(spans, window)
    possible_ns = len(busy) * window.length_ns
    if not possible_ns:
        return None, None
    # A first iteration that ends late leaves a window that is shorter than the work in it.
    alone = min(1.0, int(busy["busy_ns"].sum()) / possible_ns)
    if not _prefills(spans):
        return alone, alone
    filled_ns = int((gpu_busy(spans, window, with_prefill=True)["busy_ns"] - busy["busy_ns"]).sum())
    return alone, min(1.0, alone + filled_ns / int(busy.to_numpy().sum()))


def _prefills(spans: pd.DataFrame) -> bool:
    return bool(is_among(spans["kind"], (PREFILL,)).any())


def idle_share(busy: pd.DataFrame) -> float | None:
    """Return the share of bubbles, a fraction: 1 - ``gpu_utilization``. None if that is None."""
    utilization = gpu_utilization(busy)
    return None if utilization is None else 1.0 - utilization


def union_length_ns(start_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64]) -> int:
    """Return the length of the union of the intervals [start, end). Overlapping time counts once. O(n log n)."""
    return int(GroupedIntervals.of(np.zeros(len(start_ns), np.int64), start_ns, end_ns).covered(1)[0])
