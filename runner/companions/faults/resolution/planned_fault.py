"""Describe what fails during a trial, with the hosts that are lost by it."""

from dataclasses import dataclass

from wanbed.runner.companions.faults.spec import FaultSpec, Faulty
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class PlannedFault:
    """One failure at ``at_ns`` after training has begun, in undilated time.

    ``name`` is the host's, or the datacenter's whose gateway fails; ``rank`` is -1 unless a rank fails. ``hosts`` are
    those that nothing can run on any more: none where a rank fails. ``back_ns`` is when it is started again, None where
    it stays failed.
    """

    kind: Faulty
    name: str
    rank: int
    at_ns: int
    hosts: tuple[str, ...]
    back_ns: int | None = None

    def __str__(self) -> str:
        """Name what fails, as messages and tables do."""
        match self.kind:
            case "host":
                return f"host {self.name}"
            case "gateway":
                return f"gateway of {self.name}"
            case "rank":
                return f"rank {self.rank}"

    @classmethod
    def of(cls, spec: FaultSpec, topology: Topology) -> "PlannedFault":
        """Return the fault that ``spec`` describes. Host and datacenter must be in the topology."""
        back_ns = None if spec.back_after is None else spec.at + spec.back_after
        if spec.host is not None:
            return cls("host", spec.host, -1, spec.at, (spec.host,), back_ns)
        if spec.gateway is not None:
            hosts = tuple(host.name for host in topology.datacenter(spec.gateway).hosts)
            return cls("gateway", spec.gateway, -1, spec.at, hosts)
        assert spec.rank is not None
        return cls("rank", "", spec.rank, spec.at, (), back_ns)

    def hits(self, rank: int, host: str) -> bool:
        """Return whether it ends or cuts off that rank on that host."""
        return rank == self.rank if self.kind == "rank" else host in self.hosts

    def overlaps(self, other: "PlannedFault") -> bool:
        """Return whether one of the two is not back when the other fails."""
        first, second = sorted((self, other), key=lambda fault: fault.at_ns)
        return first.back_ns is None or first.back_ns >= second.at_ns
