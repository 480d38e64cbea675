"""Networks of sweep points that a test brings up in its own way."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from wanbed.runner.emulation.emulation import NetworkOf
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.running_testbed import RunningTestbed

BringUp = Callable[[Topology], AbstractContextManager[RunningTestbed]]


@dataclass(frozen=True)
class _BroughtUp:
    topology: Topology
    bring_up: BringUp

    def up(self, dilation: float) -> AbstractContextManager[RunningTestbed]:
        return self.bring_up(self.topology.dilated(dilation))


def networks(bring_up: BringUp) -> NetworkOf:
    """The network of each sweep point, which ``bring_up`` brings up from its dilated topology."""
    return lambda point: _BroughtUp(point.topology, bring_up)
