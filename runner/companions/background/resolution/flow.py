"""A flow in the background as it runs: its hosts, its TCP, and what it offers over time."""

from dataclasses import dataclass
from typing import Any

from wanbed.runner.companions.background.spec import FlowKind
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.placement import Pair
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.workloads.background.offered_rate import OfferedRate


@dataclass(frozen=True)
class BackgroundFlow:
    """A flow in the background between the two places ``ends``, which train nothing.

    ``transport`` has its connections and their settings, and ``tcp`` is what the two hosts are set to; with UDP, where
    ``is_tcp`` is False, there is one connection to count.
    """

    name: str
    kind: FlowKind
    is_tcp: bool
    is_synthetic: bool
    ends: Pair
    transport: TransportSpec
    tcp: TcpSettings
    offered: OfferedRate

    @property
    def connections(self) -> int:
        """The number of connections."""
        assert isinstance(self.transport.connections, int)
        return self.transport.connections

    @property
    def hosts(self) -> tuple[str, str]:
        """The names of the sending and the receiving host."""
        return self.ends[0].host.name, self.ends[1].host.name

    def document(self) -> dict[str, Any]:
        """Return what a trial records of it, in plain JSON types."""
        one, other = self.ends
        return {
            "name": self.name,
            "kind": self.kind,
            "synthetic": self.is_synthetic,
            "protocol": "tcp" if self.is_tcp else "udp",
            "connections": self.connections,
            "source": one.datacenter,
            "destination": other.datacenter,
            "hosts": list(self.hosts),
        }
