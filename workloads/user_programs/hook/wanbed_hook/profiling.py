"""Record the last iterations with torch.profiler and turn what it saw into spans."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from .busy_time import cpu_busy, cut, gpu_busy
from .collectives import Collective, Launch, find_collectives, read_flight_recorder
from .device_record import uses_gpu
from .optimizer_steps import Step
from .span_log_file import Span
from .trace import CLOCK_MARK, Times, read_trace

_MARKS = 5
"""So many looks at the clock at the start and at the end; the best one counts."""

_Iteration = tuple[int, int, int]


class Profile:
    """A recording of this process. Call ``stop``, then ``spans``."""

    def __init__(self, torch: ModuleType, path: str) -> None:
        """Start to record. ``path`` is where torch may write its trace."""
        self._torch = torch
        self._path = path
        self._on_gpu = uses_gpu(torch)
        self._monotonic_less_real_ns = time.monotonic_ns() - time.time_ns()
        self.synchronize()
        profiler = torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profile = profiler.profile(
            activities=activities, record_shapes=True, experimental_config=_all_threads(torch)
        )
        self._profile.start()
        self._first = [self._look_at_clock() for _ in range(_MARKS)]

    def synchronize(self) -> None:
        """Wait until the GPU has done what was launched, so that it counts in the iteration that launched it."""
        if self._on_gpu:
            self._torch.cuda.synchronize()

    def stop(self) -> None:
        """End the recording."""
        self._last = [self._look_at_clock() for _ in range(_MARKS)]
        self._profile.stop()

    def spans(self, iterations: Sequence[_Iteration], steps: Iterable[Step], rank: int) -> tuple[list[Span], int]:
        """Return the spans of these iterations of ``rank``, and the largest error of their times that clocks cause.

        Times are those of CLOCK_MONOTONIC. A collective is of the iteration that launched it and is not cut.
        """
        try:
            self._profile.export_chrome_trace(self._path)
            trace = read_trace(self._path, self._first, self._last)
        finally:
            if os.path.exists(self._path):
                os.unlink(self._path)
        busy = (gpu_busy if self._on_gpu else cpu_busy)(trace.events, steps)
        spans = [Span(part.kind, number, -1, part.start_ns, part.end_ns) for number, part in cut(busy, iterations)]
        for each in find_collectives(trace, self._launches(iterations[0][1])):
            number = next((number for number, begin, end in iterations if begin <= each.launched_ns < end), None)
            if number is not None:
                spans.append(_span(each, number, rank))
        return spans, trace.clock_error_ns

    def _look_at_clock(self) -> Times:
        before_ns = time.monotonic_ns()
        with self._torch.profiler.record_function(CLOCK_MARK):
            after_ns = time.monotonic_ns()
        return before_ns, after_ns

    def _launches(self, since_ns: int) -> list[Launch]:
        """Return what torch's flight recorder kept since then. It is always on, but not in every version of torch."""
        distributed = getattr(self._torch, "distributed", None)
        if distributed is None or not distributed.is_available():
            return []
        dump: Any = getattr(self._torch._C._distributed_c10d, "_dump_fr_trace_json", None)
        launches = [] if dump is None else read_flight_recorder(dump(), self._monotonic_less_real_ns)
        return [each for each in launches if each.launched_ns >= since_ns]


def _all_threads(torch: ModuleType) -> Any:
    """Return the option by which torch records threads that the program started itself, None if it has none."""
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return None


def _span(each: Collective, number: int, rank: int) -> Span:
    """Return the span of an operation, with the ranks that take part: of a message from which one to which one."""
    ranks = each.ranks
    if each.peer >= 0:
        ends = (rank, each.peer) if each.kind == "send" else (each.peer, rank)
        ranks = ",".join(map(str, ends))
    return Span(each.kind, number, -1, each.start_ns, each.end_ns, each.size_bytes, "", ranks)
