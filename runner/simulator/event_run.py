"""Run the events of a simulation to their end, and let signals interrupt it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wanbed.flow.event_queue import EventQueue
from wanbed.ground.errors import SimulationError


def run_events(run: Callable[[], None], events: EventQueue) -> None:
    """Call ``run``, which handles the events. Raise SimulationError, one line, where numbers are beyond 64 bits."""
    with no_garbage_collection():
        try:
            run()
        except OverflowError:
            raise SimulationError(
                f"its times or sizes are beyond 64 bits after {events.now_ns / 1e9:.3g} s: give shorter times, smaller "
                "sizes, higher rates or fewer iterations"
            ) from None


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which takes a quarter of the time of a large simulation.

    A simulation creates no reference cycles that become garbage before its end, nor does what prepares it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def let_signals_in() -> None:
    """Have Python run the handlers of signals that have arrived, which may raise.

    It does so only between steps of code that it interprets, like these: this module is never compiled. A
    handler that has run in the middle of compiled code has its exception raised here (``products.h``).
    """
