"""Measure how long GPUs computed, and how long they were idle for which cause.

Each gap between two computations is divided by what the second one waited for. A gap ends at a computation. A forward
needs an activation, except at the first stage; a backward and its recomputation need a gradient, except at the last
stage. Where stages are divided, virtual stages are meant. An iteration of a GPU, with its optimizer, ends only after
all that the GPU sent has left. The parts of a gap are

- ``all_reduce``: during the all-reduce of this GPU's gradients, another collective of a trace, or the all-reduce of the
  gradient norm over all GPUs;
- ``link``: from the time the neighbour stage had computed the tensor until it had arrived here, which includes queueing
  for the link and latency; at the end of an iteration, also the time until the last sent tensor had left; where sends
  block, the time until the tensor that this GPU had computed before the gap had left;
- ``activation``, ``gradient``: before that, while the neighbour stage had not computed the tensor yet;
- ``schedule``: after the tensor had arrived, or where none was needed: the schedule held the computation back, or the
  rank was busy with something other than computing;
- ``fill_drain``: what would be ``activation``, ``gradient`` or ``schedule``, but lies before the first or after the
  last computation of an iteration of this GPU: pipeline fill and drain.

Prefill during a gap is not idle time. It is subtracted from the part in which it lies, so that the parts show which
bubbles stay empty.

Source: this project's definition. A tensor whose arrival was not logged counts as arrived when it was used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.intervals import (
    MOST_KEYS,
    CoveredTime,
    GroupedIntervals,
    Numbers,
    is_among,
    numbered,
    text_codes,
)
from wanbed.results.metrics.iterations import Window
from wanbed.results.records.schema import VIRTUAL_STAGE
from wanbed.results.records.span_log import ACTIVATION, ALL_REDUCE, COMPUTE_KINDS, GRADIENT, JOINT_KINDS, PREFILL


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

    def intervals(self, gpus: Gpus, spans: pd.DataFrame, chosen: npt.NDArray[np.bool_]) -> GroupedIntervals:
        """Return the chosen spans as intervals of their GPUs, each within the window of its GPU."""
        own = gpus.of_span[chosen]
        starts_ns, ends_ns = (
            np.clip(spans[name].to_numpy(np.int64)[chosen], self.start_ns[own], self.end_ns[own])
            for name in ("start_ns", "end_ns")
        )
        return GroupedIntervals.of(own, starts_ns, ends_ns)


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
    return windows.intervals(gpus, spans, is_among(spans["kind"], kinds)).covered(len(gpus.index))


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


Flags = npt.NDArray[np.bool_]

IDLE_CAUSES = (ACTIVATION, GRADIENT, "link", ALL_REDUCE, "schedule", "fill_drain")

NO_ITERATION = -1

_FORWARD = "forward"

_BACKWARD = ("backward", "backward_input")

_NEED_A_GRADIENT = ("recompute", *_BACKWARD)


def idle_causes(spans: pd.DataFrame, window: Window, *, sends_block: bool = False) -> pd.DataFrame:
    """Return idle time of every training GPU in the window: integer columns ``IDLE_CAUSES``, in ns, by (host, gpu).

    For each GPU they add up exactly to the idle_ns of ``gpu_busy`` with prefill. With ``sends_block`` a GPU computed
    nothing while it sent. O(n log n) in the number of spans.
    """
    spans = spans_of_training_gpus(spans)
    gpus = Gpus.of(spans)
    kinds = spans["kind"]
    computing, updating = is_among(kinds, COMPUTE_KINDS), is_among(kinds, ("optimizer",))
    windows = GpuWindows.of(gpus, spans, window)
    gaps = _gaps(gpus, spans, computing, updating, windows)
    sent_ns = _sent_ns(gpus, spans, gaps)
    if sends_block:
        sent_ns = np.maximum(sent_ns, _held_ns(gpus, spans, gaps))
    sent_ns = np.clip(sent_ns, gaps.start_ns, gaps.end_ns)
    made_ns, arrived_ns, gradient = _tensors(spans, gaps.span)
    made_ns = np.clip(np.where(made_ns < 0, gaps.end_ns, made_ns), sent_ns, gaps.end_ns)
    arrived_ns = np.clip(np.where(arrived_ns < 0, gaps.end_ns, arrived_ns), made_ns, gaps.end_ns)
    needed = gradient >= 0
    # Where no tensor is needed, the rest of the gap counts as after its arrival.
    made_ns, arrived_ns = (np.where(needed, times_ns, sent_ns) for times_ns in (made_ns, arrived_ns))

    latest_ns = int(windows.end_ns.max(initial=0))

    def covered_by(chosen: Flags) -> CoveredTime:
        return CoveredTime(windows.intervals(gpus, spans, chosen), latest_ns)

    reducing, prefilling = is_among(kinds, JOINT_KINDS), is_among(kinds, (PREFILL,))
    prefilled, occupied = covered_by(prefilling), covered_by(reducing | prefilling)

    def left(start_ns: Numbers, end_ns: Numbers) -> Numbers:
        return end_ns - start_ns - occupied.between(gaps.gpu, start_ns, end_ns)

    unmade_ns, held_ns = left(sent_ns, made_ns), left(arrived_ns, gaps.end_ns)
    whole = (gaps.gpu, gaps.start_ns, gaps.end_ns)
    shares = {
        ACTIVATION: np.where(gaps.inside & (gradient == 0), unmade_ns, 0),
        GRADIENT: np.where(gaps.inside & (gradient == 1), unmade_ns, 0),
        "link": left(gaps.start_ns, sent_ns) + left(made_ns, arrived_ns),
        ALL_REDUCE: occupied.between(*whole) - prefilled.between(*whole),
        "schedule": np.where(gaps.inside, held_ns, 0),
        "fill_drain": np.where(gaps.inside, 0, unmade_ns + held_ns),
    }
    totals = {cause: np.zeros(len(gpus.index), np.int64) for cause in IDLE_CAUSES}
    for cause, share_ns in shares.items():
        np.add.at(totals[cause], gaps.gpu, share_ns)
    return pd.DataFrame(totals, index=gpus.index)


@dataclass(frozen=True)
class _Gaps:
    """The parts of its window in which a GPU did not compute, one entry per gap in every column.

    ``span`` is the position of the computation that ends the gap, -1 if the window's end does. ``inside`` is true if
    that computation is not the GPU's first one of its iteration. ``ended`` is the iteration that the GPU finished in
    the gap, -1 if none.
    """

    gpu: Numbers
    start_ns: Numbers
    end_ns: Numbers
    span: Numbers
    inside: Flags
    ended: Numbers


def _gaps(gpus: Gpus, spans: pd.DataFrame, computing: Flags, updating: Flags, windows: GpuWindows) -> _Gaps:
    busy = windows.intervals(gpus, spans, computing)
    own = np.flatnonzero(computing)[busy.order]
    begins = np.concatenate(([True], np.diff(busy.group) != 0)) if len(own) else np.zeros(0, bool)
    before_ns = np.where(begins, windows.start_ns[busy.group], busy.before)
    iteration = spans["iteration"].to_numpy()[own].astype(np.int64)
    first = begins | np.concatenate(([True], np.diff(iteration) != 0))[: len(own)]

    done_ns = windows.start_ns.copy()
    np.maximum.at(done_ns, busy.group, busy.end)
    every_gpu = np.arange(len(gpus.index))
    ended_by_window = np.full(len(every_gpu), -1)
    gpu, start_ns, end_ns, span = (
        np.concatenate(both)
        for both in (
            (busy.group, every_gpu),
            (before_ns, done_ns),
            (busy.start, windows.end_ns),
            (own, ended_by_window),
        )
    )
    inside = np.concatenate((~first, np.zeros(len(every_gpu), bool)))
    last = np.full(len(every_gpu), NO_ITERATION)
    np.maximum.at(last, busy.group, iteration)
    ended = np.where(updating[own], iteration, np.where(first, iteration - 1, NO_ITERATION))
    ended = np.concatenate((ended, last))
    real = end_ns > start_ns
    return _Gaps(gpu[real], start_ns[real], end_ns[real], span[real], inside[real], ended[real])


def _sent_ns(gpus: Gpus, spans: pd.DataFrame, gaps: _Gaps) -> Numbers:
    """Return for each gap when the last send of its ``ended`` iteration ended on its GPU, in ns; 0 if none."""
    sending = is_among(spans["kind"], ("send",))
    iterations = int(spans["iteration"].max()) + 1 if len(spans) else 0
    latest_ns = np.zeros((len(gpus.index), iterations + 1), np.int64)
    iteration = spans["iteration"].to_numpy(np.int64)[sending]
    np.maximum.at(latest_ns, (gpus.of_span[sending], iteration), spans["end_ns"].to_numpy(np.int64)[sending])
    # The last column stands for NO_ITERATION.
    return latest_ns[gaps.gpu, gaps.ended]


def _held_ns(gpus: Gpus, spans: pd.DataFrame, gaps: _Gaps) -> Numbers:
    """Return for each gap when the last send that ended in it or before it ended on its GPU, in ns; 0 if none."""
    sending = (spans["kind"] == "send").to_numpy(bool)
    end_ns = spans["end_ns"].to_numpy(np.int64)[sending]
    # One number for a GPU and a time, which orders the times of each GPU.
    apart = max(int(end_ns.max(initial=0)), int(gaps.end_ns.max(initial=0))) + 1
    keys = np.sort(gpus.of_span[sending] * apart + end_ns)
    before = np.concatenate(([-1], keys))[np.searchsorted(keys, gaps.gpu * apart + gaps.end_ns, "right")]
    return np.where(before // apart == gaps.gpu, before % apart, 0)


def _tensors(spans: pd.DataFrame, users: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return, for each span of ``users``, when the tensor it needs was computed, when it arrived, and its kind.

    Times are in ns, -1 if not logged. The kind is 0 for an activation, 1 for a gradient, -1 if none is needed.
    """
    kinds, tensors = spans["kind"], spans["tensor"]
    pipeline, own_stage, iteration, microbatch = (
        spans[name].to_numpy(np.int64) for name in ("pipeline", "stage", "iteration", "microbatch")
    )
    stage = _virtual_stages(spans)
    keys = _Keys([pipeline, stage, iteration, microbatch])
    last = np.zeros(int(pipeline.max(initial=0)) + 1, np.int64)
    np.maximum.at(last, pipeline, stage)
    takes_activation = is_among(kinds, (_FORWARD,)) & (stage > 0)
    takes_gradient = is_among(kinds, _NEED_A_GRADIENT) & (stage < last[pipeline])
    tensor = np.where(users < 0, -1, np.where(takes_gradient[users], 1, np.where(takes_activation[users], 0, -1)))
    made_ns, arrived_ns = np.full(len(users), -1), np.full(len(users), -1)
    end_ns = spans["end_ns"].to_numpy(np.int64)
    received = is_among(kinds, ("receive",))
    sources = ((ACTIVATION, (_FORWARD,), -1), (GRADIENT, _BACKWARD, 1))
    for number, (name, making, step) in enumerate(sources):
        needing = np.flatnonzero(tensor == number)
        arriving = received & is_among(tensors, (name,))
        made_ns[needing] = _look_up(keys, is_among(kinds, making), end_ns, keys.of(users[needing], step))
        arrived_ns[needing] = _look_up(keys, arriving, end_ns, keys.of(users[needing]))
        # Two virtual stages of one stage hand over at once.
        makers = _look_up(keys, is_among(kinds, making), own_stage, keys.of(users[needing], step))
        arrived_ns[needing] = np.where(makers == own_stage[users[needing]], made_ns[needing], arrived_ns[needing])
    return made_ns, arrived_ns, tensor


def _virtual_stages(spans: pd.DataFrame) -> Numbers:
    """Return the virtual stage of each span; its stage where stages are not divided, and for what concerns none."""
    stage = spans["stage"].to_numpy(np.int64)
    if VIRTUAL_STAGE not in spans:
        return stage
    virtual = spans[VIRTUAL_STAGE].to_numpy(np.float64, na_value=-1.0)
    return np.where(virtual >= 0, virtual.astype(np.int64), stage)


class _Keys:
    """Encode (pipeline, virtual stage, iteration, microbatch) of the spans as one number each."""

    def __init__(self, coordinates: list[Numbers]) -> None:
        self._coordinates = coordinates
        # Leave room for one stage and one microbatch more at either end: neighbour stages, and microbatch -1.
        self._sizes = [int(each.max(initial=0)) + 3 for each in coordinates]

    def __len__(self) -> int:
        return len(self._coordinates[0])

    @property
    def limit(self) -> int:
        """A number that is above all keys."""
        return prod(self._sizes)

    def of(self, positions: Numbers, step: int = 0) -> Numbers:
        """Return the keys of the spans at these positions, with their stage shifted by ``step``."""
        pipeline, stage, iteration, microbatch = (each[positions] for each in self._coordinates)
        _, stages, iterations, microbatches = self._sizes
        return ((pipeline * stages + stage + step + 1) * iterations + iteration) * microbatches + microbatch + 1


def _look_up(keys: _Keys, among: Flags, values: Numbers, wanted: Numbers) -> Numbers:
    """Return, for each wanted key, the value of the span with that key among the flagged ones; -1 if there is none."""
    positions = np.flatnonzero(among)
    if not len(positions):
        return np.full(len(wanted), -1)
    own = keys.of(positions)
    if keys.limit <= len(keys) + MOST_KEYS:
        found = np.full(keys.limit, -1)
        # Of several spans with one key, the first.
        found[own[::-1]] = positions[::-1]
        return np.where(found[wanted] >= 0, values[found[wanted]], -1)
    order = np.argsort(own, kind="stable")
    place = np.minimum(np.searchsorted(own[order], wanted), len(own) - 1)
    found = positions[order[place]]
    return np.where(own[order[place]] == wanted, values[found], -1)
