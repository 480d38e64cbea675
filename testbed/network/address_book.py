"""Map the hosts of one testbed to their addresses and back."""

from dataclasses import dataclass

from wanbed.testbed.network.addressing import host_address, loopback_address
from wanbed.testbed.network.topology import Host, Topology


@dataclass(frozen=True)
class AddressBook:
    """The addresses of all hosts of a topology in one address slot."""

    topology: Topology
    slot: int

    def address(self, host: Host) -> str:
        """Return the IPv4 address of ``host``, which its programs bind."""
        return host_address(self.slot, self.topology.datacenter(host.datacenter).index, host.index)

    def address_from(self, host: Host, viewer: Host) -> str:
        """Return the address of ``host`` for programs on ``viewer``."""
        return self.address(host)

    def host_names(self) -> dict[str, str]:
        """Return the name of the host at each address."""
        return {self.address(host): host.name for host in self.topology.hosts}

    def hosts_file(self) -> str:
        """Return the text of an /etc/hosts with the names of all hosts."""
        lines = [f"{self.address(host)} {host.name}" for host in self.topology.hosts]
        return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


class LoopbackAddressBook(AddressBook):
    """The addresses of hosts without namespaces, all on this machine's loopback. ``slot`` is the part of it.

    A host has a second address, at which the others reach it: there a relay listens for it.
    """

    def address(self, host: Host) -> str:
        """Return the address that programs of ``host`` bind."""
        return self._address(host, reached=False)

    def address_from(self, host: Host, viewer: Host) -> str:
        """Return the address of ``host`` for programs on ``viewer``."""
        return self.address(host) if host.name == viewer.name else self.reached_at(host)

    def reached_at(self, host: Host) -> str:
        """Return the address at which other hosts reach ``host``."""
        return self._address(host, reached=True)

    def _address(self, host: Host, *, reached: bool) -> str:
        return loopback_address(self.slot, self.topology.datacenter(host.datacenter).index, host.index, reached=reached)
