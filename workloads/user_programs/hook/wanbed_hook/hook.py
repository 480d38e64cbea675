"""Mark the iterations of the program that runs in this process, and record what the last ones do."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .config import CALL, OPTIMIZER, HookConfig, read_config
from .device_record import device_record, write_software
from .iterations import Iterations
from .optimizer_steps import OptimizerSteps, Step
from .profiling import Profile
from .span_log_file import Span, SpanLogFile
from .torch_import import after_import

_LOADED_NS = time.monotonic_ns()


class Hook:
    """The record of this process. After the last iteration, a fault or a fork it does nothing any more."""

    def __init__(self, config: HookConfig, start_ns: int) -> None:
        self._config = config
        self._iterations = Iterations(config.iterations, config.profile, max(start_ns, config.epoch_ns))
        self._on = True
        self._lock = threading.RLock()
        self._log: SpanLogFile | None = None
        self._torch: ModuleType | None = None
        self._optimizers = OptimizerSteps(self._step_ended)
        self._steps: list[Step] = []
        self._profile: Profile | None = None
        self._profiled: list[tuple[int, int, int]] = []
        self._profiled_steps: list[Step] = []
        self._clock_error_ns = 0

    def begin(self) -> None:
        """Wait for torch to be imported by the program."""
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._guarded, self._exit)
        after_import("torch", lambda torch: self._guarded(lambda: self._follow(torch)))

    def mark_iteration(self) -> None:
        """End an iteration, if calls do that."""
        now_ns = time.monotonic_ns()
        if self._config.marked_by == CALL:
            self._guarded(lambda: self._end_iteration(now_ns))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work if the hook is on. Its fault is one line on standard error, and switches the hook off."""
        if not self._on:
            return
        try:
            with self._lock:
                work()
        except Exception as fault:
            self._on = False
            self._optimizers.leave()
            _report("the hook records no more", fault)

    def _forked(self) -> None:
        self._on = False
        # Another thread may have held it in the parent.
        self._lock = threading.RLock()

    def _follow(self, torch: ModuleType) -> None:
        self._torch = torch
        self._optimizers.follow(torch)

    def _step_ended(self, step: Step, is_first: bool) -> None:
        self._guarded(lambda: self._take(step, is_first))

    def _take(self, step: Step, is_first: bool) -> None:
        self._steps.append(step)
        if is_first and self._config.marked_by == OPTIMIZER:
            self._end_iteration(step.end_ns)

    def _end_iteration(self, now_ns: int) -> None:
        if self._log is None:
            self._log = SpanLogFile.claim(self._config.log, self._config.header)
            if self._log is None:
                self._switch_off()
                return
            write_software(f"{self._config.log}.software.json", self._torch)
        if self._profile is not None:
            self._profile.synchronize()
            now_ns = time.monotonic_ns()
        steps, self._steps = self._steps, []
        ended = self._iterations.end(now_ns)
        entries = [self._relative(Span("iteration", ended[0], -1, *ended[1:]))]
        if self._profile is None:
            entries += self._step_spans([ended], steps)
        else:
            self._profiled.append(ended)
            self._profiled_steps += steps
        self._log.write(entries)
        if self._iterations.begins_profile:
            self._begin_profile()
        elif self._iterations.is_over:
            self._end_profile()
            self._complete()

    def _begin_profile(self) -> None:
        if self._torch is None:
            return
        try:
            self._profile = Profile(self._torch, f"{self._config.log}.{os.getpid()}.trace.json")
        except Exception as fault:
            _report("the last iterations are not profiled", fault)
        self._iterations.begin_later(time.monotonic_ns())

    def _end_profile(self) -> None:
        """Write the spans of the profiled iterations, of which the optimizers' are as the profiler saw them."""
        if self._profile is None or self._log is None:
            return
        try:
            self._profile.stop()
            rank = self._config.header["rank"]
            spans, self._clock_error_ns = self._profile.spans(self._profiled, self._profiled_steps, rank)
            entries = [self._relative(each) for each in spans]
        except Exception as fault:
            _report("the last iterations are not profiled", fault)
            entries = self._step_spans(self._profiled, self._profiled_steps)
        self._profile = None
        self._log.write(entries)

    def _step_spans(self, iterations: list[tuple[int, int, int]], steps: list[Step]) -> list[Span]:
        return [
            self._relative(Span("optimizer", number, -1, max(step.start_ns, start_ns), min(step.end_ns, end_ns)))
            for step in steps
            for number, start_ns, end_ns in iterations
            if start_ns < step.end_ns <= end_ns
        ]

    def _relative(self, span: Span) -> Span:
        epoch_ns = self._config.epoch_ns
        return span._replace(start_ns=span.start_ns - epoch_ns, end_ns=span.end_ns - epoch_ns)

    def _exit(self) -> None:
        # Python keeps the error that ends the program here.
        if self._log is not None and not hasattr(sys, "last_type"):
            self._complete()

    def _complete(self) -> None:
        """Write the last lines. Whoever reads the very last may end this process at once."""
        if self._log is None:
            return
        entries: list[dict[str, Any]] = [{"complete": True}]
        if self._torch is not None:
            entries.insert(0, device_record(self._torch, self._clock_error_ns))
        self._log.write(entries)
        self._log.close()
        self._switch_off()

    def _switch_off(self) -> None:
        self._on = False
        self._optimizers.leave()


_hook: Hook | None = None


def start(config_path: str) -> None:
    """Begin to record this process as the file says."""
    global _hook  # noqa: PLW0603 - the hook is the process's
    _hook = Hook(read_config(config_path), _LOADED_NS)
    _hook.begin()


def mark_iteration() -> None:
    """End an iteration of this process, if calls do that."""
    if _hook is not None:
        _hook.mark_iteration()


def _report(what: str, fault: Exception) -> None:
    text = " ".join(str(fault).split())
    sys.stderr.write(f"wanbed: {what}: {type(fault).__name__}: {text}\n")
