"""Make the outer steps of a rank that computes for real, timed as its other work."""

from collections.abc import Callable

from wanbed.workloads.synchronization.outer_optimizer import OuterOptimizer
from wanbed.workloads.synchronization.synchronization import Synchronization

Timed = Callable[[Callable[[], None]], tuple[int, int]]
"""Carries out a function on the device. Returns its start and end."""


class OuterSteps:
    """The steps of ``outer``, timed by ``timed``. A state that has been taken over is given to ``release``."""

    def __init__(self, outer: OuterOptimizer, timed: Timed, release: Callable[[memoryview], None]) -> None:
        self._outer = outer
        self._timed = timed
        self._release = release

    @property
    def rules(self) -> Synchronization:
        """The rules that ``outer`` follows."""
        return self._outer.rules

    def encode(self, fragment: int) -> tuple[int, int]:
        """Encode the pseudo-gradient of a fragment in host memory. Return its start and end."""
        return self._timed(lambda: self._outer.encode(fragment))

    def encoded(self, fragment: int) -> memoryview:
        """Return the encoded pseudo-gradient of a fragment."""
        return self._outer.encoded(fragment)

    def add_encoded(self, total: memoryview, part: memoryview) -> None:
        """Add in fp32, and encode the sum."""
        self._outer.add(total, part)

    def apply(self, fragment: int, parts: int) -> tuple[int, int]:
        """Take the outer step of a fragment. Return its start and end."""
        return self._timed(lambda: self._outer.apply(fragment, parts))

    def state(self, size_bytes: int) -> memoryview:
        """Return the global parameters and the outer momentum, in fp32."""
        return self._outer.state(size_bytes)

    def take_state(self, state: memoryview) -> None:
        """Take over global parameters and outer momentum, and begin with these parameters. AdamW begins anew."""
        self._outer.take_state(state)
        self._release(state)
