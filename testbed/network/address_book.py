"""Map the hosts of one testbed to their addresses and back."""

from dataclasses import dataclass

from testbed.network.addressing import host_address
from testbed.network.topology import Host, Topology


@dataclass(frozen=True)
class AddressBook:
    """The addresses of all hosts of a topology in one address slot."""

    topology: Topology
    slot: int

    def address(self, host: Host) -> str:
        """Return the IPv4 address of ``host``."""
        return host_address(self.slot, self.topology.datacenter(host.datacenter).index, host.index)

    def host_names(self) -> dict[str, str]:
        """Return the name of the host at each address."""
        return {self.address(host): host.name for host in self.topology.hosts}

    def hosts_file(self) -> str:
        """Return the text of an /etc/hosts with the names of all hosts."""
        lines = [f"{self.address(host)} {host.name}" for host in self.topology.hosts]
        return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"
