"""Follow the steps of torch's optimizers by the hooks that torch calls for every optimizer."""

from __future__ import annotations

import importlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One step of an optimizer, on a thread known by the number that the kernel gives it. CLOCK_MONOTONIC."""

    thread: int
    start_ns: int
    end_ns: int


class OptimizerSteps:
    """Calls ``ended(step, is_first)`` at the end of every step.

    ``is_first`` says that the optimizer is the one that stepped first. When that one is gone, the next that steps takes
    its place. A step within a step of the same thread, of an optimizer that another one wraps, is part of that.
    """

    def __init__(self, ended: Callable[[Step, bool], None]) -> None:
        self._ended = ended
        self._first: weakref.ref[Any] | None = None
        self._of_thread = threading.local()
        self._handles: list[Any] = []

    def follow(self, torch: ModuleType) -> None:
        """Register the hooks. Raise ImportError or AttributeError if this torch has none."""
        optimizer = importlib.import_module(f"{torch.__name__}.optim.optimizer")
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before),
            optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def leave(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, optimizer: object, args: object, kwargs: object) -> None:
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        open_steps = self._open_steps()
        if open_steps:
            # A step that raised has left its entry behind: it is no longer being called.
            called = set(_callers(sys._getframe(1)))
            open_steps[:] = [each for each in open_steps if each[0] in called]
        open_steps.append((sys._getframe(1), optimizer, time.monotonic_ns()))

    def _after(self, optimizer: object, args: object, kwargs: object) -> None:
        end_ns = time.monotonic_ns()
        open_steps = self._open_steps()
        while open_steps:
            _, opened, start_ns = open_steps.pop()
            if opened is optimizer:
                break
        else:
            return
        if not open_steps:
            is_first = self._first is not None and self._first() is optimizer
            self._ended(Step(threading.get_native_id(), start_ns, end_ns), is_first)

    def _open_steps(self) -> list[tuple[FrameType, object, int]]:
        """Return this thread's steps that have not ended: the calling frame, the optimizer, the start."""
        steps: list[tuple[FrameType, object, int]] = self._of_thread.__dict__.setdefault("steps", [])
        return steps


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
