"""Define the entries of ``fail`` in the experiment file: what fails during a trial, when, and the hosts lost by it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel, is_none
from wanbed.ground.units import DurationNs
from wanbed.runner.experiment.quantities import MAX_PIPELINES, NameOrPath, whole_number
from wanbed.runner.experiment.training_spec import MAX_STAGES
from wanbed.testbed.network.topology import Topology

MAX_FAULTS = 100

MAX_CHECKPOINT_EVERY = 10_000

Recovery = Literal["none", "restart"]
"""The reaction of a training to a fault: it ends there, or begins again at its last checkpoint."""

Faulty = Literal["host", "rank", "gateway"]
"""The things that can fail besides links. Failures of links are a part of their conditions over time."""


class FaultSpec(StrictModel):
    """One failure: what fails, one of ``host``, ``rank`` and ``gateway``, and when. It stays failed, or comes back."""

    host: NameOrPath | None = Field(
        default=None,
        exclude_if=is_none,
        description="The host that fails: its interface goes down and all that runs on it is killed.",
        examples=["east-1"],
    )
    rank: Annotated[int, whole_number(0, MAX_PIPELINES * MAX_STAGES - 1)] | None = Field(
        default=None,
        exclude_if=is_none,
        description="The rank that fails, `pipeline x stages + stage`: its process is killed, and its host stays up.",
        examples=[3],
    )
    gateway: NameOrPath | None = Field(
        default=None,
        exclude_if=is_none,
        description="The datacenter whose gateway fails: its hosts still run, but reach nobody and are not reached.",
        examples=["west"],
    )
    at: DurationNs = Field(
        description="When it fails, from the moment at which training begins.", examples=["10s", "0ms"]
    )

    back_after: DurationNs | None = Field(
        default=None,
        exclude_if=is_none,
        alias="for",
        description="How long until a replica of a star with a quorum is started again, which then joins the training "
        "under way. For a rank or a host. Default: it stays failed.",
        examples=["15s"],
    )

    @model_validator(mode="before")
    @classmethod
    def _links_change_by_their_conditions(cls, written: JsonValue) -> JsonValue:
        if isinstance(written, dict) and "link" in written:
            raise ValueError(
                "a link's failure is a part of its conditions over time: leave link out here, and give the link "
                "events, like {at: 5s, for: 3s, down: true}"
            )
        return written

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare that only hosts and ranks come back."""
        return (Exclusion("for", "a gateway that fails does not come back", when=self.gateway is not None),)

    @model_validator(mode="after")
    def _one_thing_fails(self) -> "FaultSpec":
        if sum(value is not None for value in (self.host, self.rank, self.gateway)) != 1:
            raise ValueError("give one of host, rank and gateway, like {host: east-1, at: 20s}")
        return self

    @property
    def kind(self) -> Faulty:
        """The kind of thing that fails."""
        return "host" if self.host is not None else "rank" if self.rank is not None else "gateway"


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
