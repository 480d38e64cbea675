"""Work out what a program's processes are told of their place: placeholders, and variables of the environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wanbed.runner.resolve.placement import Placement, StagePlace
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.runner.trainings.program.spec.placeholders import filled, placeholders_in
from wanbed.testbed.hosts.host_home import HostHome
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.host_interface import HOST_INTERFACE
from wanbed.testbed.network.topology import Host
from wanbed.workloads.collective.collective_config import gloo_environment, nccl_environment
from wanbed.workloads.collective.ways_around import ucx_environment


@dataclass(frozen=True)
class ProgramPlaces:
    """The ranks of a program and their hosts. The host of rank 0 serves the rendezvous, at ``rendezvous_port``.

    ``homes`` has what programs find on each host, by its name.
    """

    program: ResolvedProgram
    placement: Placement
    addresses: AddressBook
    rendezvous_port: int
    homes: Mapping[str, HostHome]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in the order of their ranks, each once."""
        return tuple({place.host.name: place.host for place in self.placement.places}.values())

    @property
    def rendezvous_host(self) -> Host:
        """The host at which all ranks meet."""
        return self.placement.places[0].host

    @property
    def rendezvous_address(self) -> str:
        """The address at which all ranks meet."""
        return self.addresses.address(self.rendezvous_host)

    def places_on(self, host: Host) -> tuple[StagePlace, ...]:
        """Return the places of one host's processes."""
        return tuple(place for place in self.placement.places if place.host.name == host.name)

    def rank(self, place: StagePlace) -> int:
        """Return the rank of a place."""
        return self.placement.rank(place)

    def values(self, host: Host, place: StagePlace | None = None) -> dict[str, str]:
        """Return the value of every placeholder on a host; those of a rank only for the place of one."""
        home = self.homes[host.name]
        known = {
            "python": home.python,
            "folder": home.place(str(self.program.folder)),
            "host": host.name,
            "datacenter": host.datacenter,
            "hosts": str(len(self.hosts)),
            "host_index": str(self.hosts.index(host)),
            "world_size": str(len(self.placement.places)),
            "local_world_size": str(len(self.places_on(host))),
            "rendezvous_host": self.rendezvous_host.name,
            "rendezvous_address": self.rendezvous_address,
            "rendezvous_port": str(self.rendezvous_port),
        }
        if place is None:
            return known
        return {**known, "rank": str(self.rank(place)), "local_rank": str(place.gpu)}

    def words(self, words: Sequence[str], host: Host, place: StagePlace | None = None) -> tuple[str, ...]:
        """Return a command with its placeholders filled in. A word that is a path of this machine's is the host's."""
        values, home = self.values(host, place), self.homes[host.name]
        return tuple(home.place(filled(word, values)) for word in words)

    def environment(self, host: Host, place: StagePlace | None = None) -> dict[str, str]:
        """Return the variables that a process on a host has beside those of ``wanbed run``.

        On a rack it has them beside those of Ray on its machine.
        Those that the user gives replace wanbed's own; one that needs a rank is left out where there is none.
        Libraries are kept on the emulated network, and Python writes what it prints at once, so that a line of output
        has the time at which it was printed.
        """
        values = self.values(host, place)
        ours = {
            **gloo_environment(HOST_INTERFACE),
            **nccl_environment(host.name, HOST_INTERFACE, apart=len(self.hosts) > 1),
            **ucx_environment(HOST_INTERFACE, apart=len(self.hosts) > 1),
            "PYTHONUNBUFFERED": "1",
            "PATH": self.homes[host.name].search_path,
        }
        if place is not None:
            ours |= {
                "RANK": values["rank"],
                "LOCAL_RANK": values["local_rank"],
                "WORLD_SIZE": values["world_size"],
                "LOCAL_WORLD_SIZE": values["local_world_size"],
                "MASTER_ADDR": values["rendezvous_address"],
                "MASTER_PORT": values["rendezvous_port"],
            }
        written = self.program.spec.env.items()
        known = ((name, value) for name, value in written if placeholders_in(value) <= values.keys())
        return {**ours, **{name: filled(value, values) for name, value in known}}
