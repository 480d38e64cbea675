"""Describe a variant with every default filled in: where it runs, over which transport, and beside which traffic."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from wanbed.runner.companions.background.spec import FlowKind
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.connections import tcp_settings
from wanbed.runner.resolve.placement import Pair, Placement
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.workloads.background_flows.flow import OfferedRate
from wanbed.workloads.bubbletea.service_config import ServiceConfig


@dataclass(frozen=True)
class Transfer:
    """A transfer between two places, in either direction. ``what`` names it in sentences: "an activation"."""

    what: str
    size_bytes: int
    pair: Pair


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


@dataclass(frozen=True, kw_only=True)
class ResolvedVariant(ABC):
    """A variant that can run. What trains in it is a subclass of its own.

    ``service`` is the prefill service beside the training, None for none. ``seed`` and ``repeat`` determine what a
    simulation draws for single packets. ``iterations`` replaces the experiment's, None where it does not.
    ``background`` is the traffic that shares the WAN with it, and trains nothing. ``failures`` are the ranks that a
    simulation lets fail.
    """

    spec: VariantSpec
    placement: Placement
    service: ServiceConfig | None = None
    seed: int = 0
    repeat: int = 0
    iterations: int | None = None
    background: tuple[BackgroundFlow, ...] = ()
    failures: tuple[PlannedFault, ...] = ()

    @property
    def name(self) -> str:
        """The variant's name, as the user wrote it."""
        return self.spec.name

    @property
    def beside(self) -> "tuple[ResolvedVariant, ...]":
        """The variants of other jobs that run at the same time, as they are alone, in order of the jobs."""
        return ()

    @property
    def transport(self) -> TransportSpec:
        """The transport between its ranks."""
        return self.spec.transport

    @property
    def tcp(self) -> TcpSettings:
        """The TCP settings of the hosts for its transport."""
        return tcp_settings(self.transport)

    @property
    def sends_block(self) -> bool:
        """Tell whether a GPU that sends starts nothing further until its message has left."""
        return not self.transport.overlap

    @property
    def holds_until_arrival(self) -> bool:
        """Tell whether a GPU that sends starts nothing further until its message has arrived."""
        return self.sends_block and self.transport.holds_until_arrival

    @property
    def receives_block(self) -> bool:
        """Tell whether a message between stages is sent only once its receiver waits for it, and computes nothing."""
        return not self.transport.receives_into_buffers

    @property
    def pipelines(self) -> int:
        """The number of pipelines, which are the replicas of the model."""
        return len(self.placement.pipelines)

    @property
    def varies(self) -> bool:
        """Tell whether compute times are drawn, so that repeats differ."""
        return False

    @property
    def goes_on_without(self) -> frozenset[int]:
        """The ranks that the others can lose and train on: none, where a sum, a message or a program waits for all."""
        return frozenset()

    def in_repeat(self, repeat: int) -> Self:
        """Return the variant with what is drawn in that repeat: compute times, and packets in a simulation."""
        return self if repeat == self.repeat else replace(self, repeat=repeat)

    @property
    @abstractmethod
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of places whose ranks have connections to each other, lower rank first, each pair once."""

    @abstractmethod
    def transfers(self) -> Iterator[Transfer]:
        """Yield what its ranks send each other in an iteration, as far as it is known: each kind of transfer once."""

    @abstractmethod
    def serial_s(self, transfer_s: Callable[[int], float]) -> float:
        """Return an upper bound of an iteration in seconds: all computation, then each transfer after the other.

        ``transfer_s`` is the longest time of a transfer of so many bytes. Raise TypeError where nothing is known.
        """

    @abstractmethod
    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""

    def _pairs_of(self, ranks: Collection[tuple[int, int]]) -> tuple[Pair, ...]:
        """Return the places of pairs of ranks, each pair once."""
        places = self.placement.places
        return tuple((places[one], places[other]) for one, other in sorted({(min(pair), max(pair)) for pair in ranks}))

    def _places_document(self) -> list[list[list[Any]]]:
        return [[[place.host.name, place.gpu] for place in pipeline] for pipeline in self.placement.pipelines]
