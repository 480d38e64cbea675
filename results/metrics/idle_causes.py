"""Attribute GPUs' idle time to causes: divide each gap between two computations by what the second one waited for.

A gap ends at a computation. A forward needs an activation, except at the first stage; a backward and its recomputation
need a gradient, except at the last stage. Where stages are divided, virtual stages are meant. An iteration of a GPU,
with its optimizer, ends only after all that the GPU sent has left. The parts of a gap are

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

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.gpu_time import Gpus, GpuWindows, spans_of_training_gpus
from wanbed.results.metrics.intervals import MOST_KEYS, CoveredTime, GroupedIntervals, Numbers, is_among
from wanbed.results.metrics.iterations import Window
from wanbed.results.records.schema import VIRTUAL_STAGE
from wanbed.results.records.span_log import ACTIVATION, ALL_REDUCE, COMPUTE_KINDS, GRADIENT, JOINT_KINDS, PREFILL

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
    clipped = dict(zip(("start_ns", "end_ns"), windows.clipped(spans, gpus.of_span), strict=True))
    gaps = _gaps(gpus, computing, updating, {**clipped, "iteration": spans["iteration"].to_numpy(np.int64)}, windows)
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
        starts_ns, ends_ns = (clipped[name][chosen] for name in ("start_ns", "end_ns"))
        return CoveredTime(GroupedIntervals.of(gpus.of_span[chosen], starts_ns, ends_ns), latest_ns)

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


def _gaps(gpus: Gpus, computing: Flags, updating: Flags, columns: dict[str, Numbers], windows: GpuWindows) -> _Gaps:
    positions = np.flatnonzero(computing)
    starts_ns, ends_ns = (columns[name][positions] for name in ("start_ns", "end_ns"))
    busy = GroupedIntervals.of(gpus.of_span[positions], starts_ns, ends_ns)
    own = positions[busy.order]
    begins = np.concatenate(([True], np.diff(busy.group) != 0)) if len(own) else np.zeros(0, bool)
    before_ns = np.where(begins, windows.start_ns[busy.group], busy.before)
    iteration = columns["iteration"][own]
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
