"""Keep the network of a sweep point up for those that follow, as long as theirs is the same."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.running_testbed import RunningTestbed


class PointNetwork(Protocol):
    """The network of a sweep point, not yet up. Equal ones have the same links, hosts, machines and devices."""

    def up(self, dilation: float) -> AbstractContextManager[RunningTestbed]:
        """Bring it up, dilated by a factor, for the duration of a ``with`` block."""


NetworkOf = Callable[[SweepPoint], PointNetwork]
"""Returns the network of a sweep point."""


class KeptTestbed:
    """The testbed that is up, if one is. ``up`` takes it down at its end."""

    def __init__(self, up: ExitStack, dilation: float) -> None:
        self._up = up
        self._dilation = dilation
        self._network: PointNetwork | None = None
        self._testbed: RunningTestbed | None = None

    def of(self, network: PointNetwork) -> RunningTestbed:
        """Return the testbed of a network: the one that is up if it is the same network, else one in its place."""
        if self._testbed is None or self._network != network:
            self.take_down()
            self._testbed, self._network = self._up.enter_context(network.up(self._dilation)), network
        return self._testbed

    def take_down(self) -> None:
        """Take down what is up, so that the next network is brought up anew."""
        self._testbed = None
        self._up.close()


@contextmanager
def kept_testbed(dilation: float) -> Iterator[KeptTestbed]:
    """Yield a testbed of which nothing is up yet, and nothing after the block. Networks are dilated by ``dilation``."""
    with ExitStack() as up:
        yield KeptTestbed(up, dilation)
