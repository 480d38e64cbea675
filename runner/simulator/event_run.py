"""Run the events of a simulation to their end."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wanbed.runner.simulator.deadlock import SimulationError
from wanbed.runner.simulator.event_queue import EventQueue


def run_events(run: Callable[[], None], events: EventQueue) -> None:
    """Call ``run``, which handles the events. Raise SimulationError, one line, where numbers are beyond 64 bits."""
    with _no_garbage_collection():
        try:
            run()
        except OverflowError:
            raise SimulationError(
                f"its times or sizes are beyond 64 bits after {events.now_ns / 1e9:.3g} s: give shorter times, smaller "
                "sizes, higher rates or fewer iterations"
            ) from None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which takes a quarter of the time of a large simulation.

    A simulation creates no reference cycles that become garbage before its end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
