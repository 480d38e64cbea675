"""Define the entries of ``fail`` in the experiment file: what fails during a trial, and when."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from wanbed.ground.strict_model import StrictModel, is_none
from wanbed.ground.units import DurationNs
from wanbed.runner.experiment.quantities import MAX_PIPELINES, NameOrPath, whole_number
from wanbed.runner.experiment.training_spec import MAX_STAGES

MAX_FAULTS = 100
MAX_CHECKPOINT_EVERY = 10_000

Recovery = Literal["none", "restart"]
"""The reaction of a training to a fault: it ends there, or begins again at its last checkpoint."""

Faulty = Literal["host", "rank", "gateway"]
"""The things that can fail besides links. Failures of links are a part of their conditions over time."""


class FaultSpec(StrictModel):
    """One failure: what fails, one of ``host``, ``rank`` and ``gateway``, and when. It stays failed, or comes back."""

    model_config = ConfigDict(serialize_by_alias=True)

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

    @model_validator(mode="after")
    def _one_thing_fails(self) -> "FaultSpec":
        if sum(value is not None for value in (self.host, self.rank, self.gateway)) != 1:
            raise ValueError("give one of host, rank and gateway, like {host: east-1, at: 20s}")
        if self.gateway is not None and self.back_after is not None:
            raise ValueError("for: a gateway that fails does not come back: leave for out")
        return self

    @property
    def kind(self) -> Faulty:
        """The kind of thing that fails."""
        return "host" if self.host is not None else "rank" if self.rank is not None else "gateway"
