"""Sample the clocks of the profiled device while it is measured, in a thread of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from wanbed.workloads.profiles.measured_conditions import DeviceState


class ClockSampler:
    """Samples ``state`` every ``interval_s``, from the beginning of each ``sampling`` block to its end.

    At least one sample is taken in each block. ``state`` is called from another thread. An error that it raises ends
    the block with that error.
    """

    def __init__(self, state: Callable[[], DeviceState], interval_s: float) -> None:
        self._state = state
        self._interval_s = interval_s
        self._samples: list[DeviceState] = []

    def take(self) -> list[DeviceState]:
        """Return all samples since the last call."""
        samples, self._samples = self._samples, []
        return samples

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample inside the block."""
        ended = Event()
        faults: list[Exception] = []

        def sample() -> None:
            try:
                self._samples.append(self._state())
                while not ended.wait(self._interval_s):
                    self._samples.append(self._state())
            except Exception as fault:
                faults.append(fault)

        thread = Thread(target=sample, name="clocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if faults:
            raise faults[0]
