"""Define the entries of ``background`` in the experiment file: traffic on the WAN that trains nothing."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from wanbed.ground.errors import shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import DurationNs, RateBps
from wanbed.runner.experiment.quantities import (
    MAX_CONNECTIONS,
    CongestionControl,
    NameOrPath,
    PrintableName,
    WindowBytes,
    whole_number,
)
from wanbed.testbed.network.links.link_spec import FilePath, Loop
from wanbed.testbed.network.tcp_settings import DEFAULT_WINDOW_BYTES

MAX_FLOWS = 20
MIN_MEAN_NS = 10_000_000
"""The shortest mean of on and off times: what is handed to TCP in one piece lasts half as long."""

FlowKind = Literal["bulk", "rate", "on-off", "trace"]
"""The way in which a flow offers bytes: as fast as it can, at a rate, now and then, or as a file prescribes."""

_OF_TCP = ("connections", "congestion", "window")


class OnOffSpec(StrictModel):
    """Times in which a flow sends, and times in which it does not, in turns. It begins with the former."""

    burst: DurationNs = Field(description="How long it sends, on average, 10ms at least.", examples=["2s"])
    pause: DurationNs = Field(description="How long it is silent, on average, 10ms at least.", examples=["3s"])
    times: Literal["exponential", "constant"] = Field(
        default="exponential",
        description="Whether each time is drawn from an exponential distribution of that mean, by `seed` and the "
        "flow's name, or is always the same.",
        examples=["constant"],
    )

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        for name, mean_ns in (("burst", self.burst), ("pause", self.pause)):
            if mean_ns < MIN_MEAN_NS:
                raise ValueError(f"{name}: it is below 10ms: give a longer time")
        return self


class BackgroundSpec(StrictModel):
    """A flow from one datacenter to another that shares the trunk with training, between two hosts of its own.

    It sends as fast as TCP lets it, unless ``rate``, ``on_off`` or ``trace`` says otherwise.
    """

    name: PrintableName = Field(description="Name of the flow in tables, each its own.", examples=["backup"])
    source: NameOrPath = Field(alias="from", description="The datacenter that sends.", examples=["east"])
    destination: NameOrPath = Field(alias="to", description="The datacenter that receives.", examples=["west"])
    protocol: Literal["tcp", "udp"] = Field(
        default="tcp",
        description="`udp` sends at its rate whatever is lost, and needs `rate` or `trace`.",
        examples=["udp"],
    )
    connections: Annotated[int, whole_number(1, MAX_CONNECTIONS)] = Field(
        default=1, description="Number of TCP connections, which share the flow's rate.", examples=[4]
    )
    congestion: CongestionControl = Field(
        default="cubic", description="Congestion control, as Linux calls it.", examples=["bbr"]
    )
    window: WindowBytes = Field(
        default=DEFAULT_WINDOW_BYTES,
        description="What one connection may have in flight, as in a variant's `transport`.",
        examples=["16MiB"],
    )
    rate: RateBps = Field(
        default=None,
        description="The most that it sends, headers included, in all connections together. Default: as much as TCP "
        "lets it.",
        examples=["200Mbit"],
    )
    on_off: OnOffSpec | None = Field(
        default=None,
        description="When it sends, at `rate` or as fast as it can. Default: always.",
        examples=[{"burst": "2s", "pause": "3s"}],
    )
    trace: FilePath | None = Field(
        default=None,
        description="What it sends over time: the path of a CSV file, relative to the experiment file, with the "
        "columns `t_s` and `rate`, like the `cross-traffic.csv` of `wanbed learn-link`. The last row holds.",
        examples=["cross-traffic.csv"],
    )
    loop: Loop = Field(
        default=False,
        description="Whether `trace` begins anew: a duration is the period, and `true` takes the time of the last row.",
        examples=[True, "1min"],
    )

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what does not go with a trace, or with none."""
        traced = self.trace is not None
        return (
            Exclusion("rate", "trace gives the rates", leave="rate or trace", when=traced),
            Exclusion("on_off", "trace says when it sends", leave="on_off or trace", when=traced),
            Exclusion("loop", "there is no trace that could begin anew", "give one", when=not traced),
        )

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.source == self.destination:
            raise ValueError(f"to: {shown(self.destination)} is where it comes from: name another datacenter")
        if self.protocol == "udp":
            if self.trace is None and self.rate is None:
                raise ValueError("protocol: udp does not find a rate by itself: give rate or trace, or protocol: tcp")
            for name in _OF_TCP:
                if name in self.model_fields_set:
                    raise ValueError(f"{name}: only TCP has that: leave it out, or give protocol: tcp")
        return self

    @property
    def kind(self) -> FlowKind:
        """The way in which the flow offers bytes."""
        if self.trace is not None:
            return "trace"
        if self.on_off is not None:
            return "on-off"
        return "bulk" if self.rate is None else "rate"

    @property
    def is_synthetic(self) -> bool:
        """Tell whether its times are drawn."""
        return self.on_off is not None and self.on_off.times == "exponential"

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> Any:
        """Leave out what the flow does not have."""
        without = {name for name, value in self if value is None or value is False}
        if self.protocol == "udp":
            without.update(_OF_TCP)
        return {name: value for name, value in write(self).items() if name not in without}


def check_background(flows: Sequence[BackgroundSpec]) -> None:
    """Raise ValueError for too many flows, and for names that are given twice."""
    if len(flows) > MAX_FLOWS:
        raise ValueError(f"background: there are {len(flows)} flows, give {MAX_FLOWS} at most")
    names = [flow.name for flow in flows]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ValueError(f"background.{position}.name: {shown(name)} is given twice: give each flow its own")
