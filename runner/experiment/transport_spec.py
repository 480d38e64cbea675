"""Define the section ``transport`` of a variant."""

from typing import Literal

from pydantic import Field, model_validator

from ground.strict_model import StrictModel
from runner.experiment.quantities import AUTO, CongestionControl, Connections, PipelinesPerCell, Truth, WindowBytes


class TransportSpec(StrictModel):
    """The TCP transport between two neighbouring stages."""

    model: Literal["tcp", "ideal"] = Field(
        default="tcp",
        description="How a simulation models the transport. `ideal` has no windows, no slow start and no headers; an "
        "emulation cannot run it.",
        examples=["ideal"],
    )
    connections: Connections = Field(
        default=1,
        description="Number of TCP connections between two hosts. `auto` opens as many as fill the node pair's cap, 64 "
        "at most.",
        examples=[8, "auto"],
    )
    window: WindowBytes = Field(
        default=6 * 2**20,
        description="Maximum of `tcp_rmem`, from 4KiB to 1GiB; the default is that of a stock Debian. Data in flight "
        "gets 0.7 of it, and in virtual time, where the kernel decides by itself, about half.",
        examples=["512KiB"],
    )
    congestion: CongestionControl = Field(
        default="cubic", description="Congestion control, as Linux calls it.", examples=["bbr"]
    )
    slow_start_after_idle: Truth = Field(
        default=True,
        description="Whether a connection that was idle starts slowly again, as in Linux unless configured otherwise.",
        examples=[False],
    )
    sharing: Literal["none", "temporal"] = Field(
        default="none",
        description="`temporal`: the pipelines of a DP-cell take turns on a stage boundary that crosses the WAN, and "
        "each transfer uses the node pairs of all of them.",
        examples=["temporal"],
    )
    pipelines_per_cell: PipelinesPerCell = Field(
        default=AUTO,
        description="Number of pipelines of a DP-cell, with `sharing: temporal`. `auto` takes the duration of a "
        "transfer in forwards, rounded up to a divisor of the number of pipelines.",
        examples=["auto"],
    )
    all_reduce: Literal["ring", "nccl", "nccl-shared", "gloo"] = Field(
        default="ring",
        description="How the gradients of a stage's replicas are all-reduced. `ring` is wanbed's ring over the same "
        "connections as all other traffic. `nccl` (between GPUs) and `gloo` are torch's; they open their own sockets "
        "and need all replicas in one datacenter. `nccl-shared` is NCCL where replicas on different hosts may share a "
        "real GPU, which NCCL does not promise to support. A simulation treats all of them as the ring.",
        examples=["gloo"],
    )

    @model_validator(mode="after")
    def _cells_share(self) -> "TransportSpec":
        if self.sharing == "none" and self.pipelines_per_cell != AUTO:
            raise ValueError("pipelines_per_cell: only pipelines that share form DP-cells: give sharing: temporal")
        return self
