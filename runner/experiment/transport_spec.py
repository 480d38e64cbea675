"""Define the section ``transport`` of a variant."""

from typing import Literal

from pydantic import model_validator

from ground.strict_model import StrictModel
from runner.experiment.quantities import AUTO, CongestionControl, Connections, PipelinesPerCell, Truth, WindowBytes


class TransportSpec(StrictModel):
    """The TCP transport between two neighbouring stages.

    ``connections`` (default 1) is the number of TCP connections between the two hosts. ``auto`` opens as many as fill
    the node pair's cap. ``window`` (default 6MiB, as on a stock Debian) is the maximum of ``tcp_rmem``. Data in flight
    gets 0.7 of it, and in virtual time, where the kernel decides by itself, about half. ``congestion`` (default cubic)
    is the congestion control. With ``slow_start_after_idle`` (default true, as in Linux) a connection that was idle
    starts slowly again.

    With ``sharing: temporal`` (default none) the ``pipelines_per_cell`` pipelines of a DP-cell take turns on a stage
    boundary that crosses the WAN: each transfer uses the node pairs of all of them. ``pipelines_per_cell: auto`` (the
    default) takes the duration of a transfer in forwards, rounded up to a divisor of the number of pipelines.

    ``all_reduce`` (default ring) selects how the gradients of a stage's replicas are all-reduced. ``ring`` is this
    project's ring over the same connections as all other traffic. ``nccl`` (between GPUs) and ``gloo`` are torch's;
    they open their own sockets and need all replicas in one datacenter. A simulation treats all of them as the ring.

    ``model`` (default tcp) selects how a simulation models the transport. ``ideal`` has no windows, no slow start and
    no headers; an emulation cannot run it.
    """

    model: Literal["tcp", "ideal"] = "tcp"
    connections: Connections = 1
    window: WindowBytes = 6 * 2**20
    congestion: CongestionControl = "cubic"
    slow_start_after_idle: Truth = True
    sharing: Literal["none", "temporal"] = "none"
    pipelines_per_cell: PipelinesPerCell = AUTO
    all_reduce: Literal["ring", "nccl", "gloo"] = "ring"

    @model_validator(mode="after")
    def _cells_share(self) -> "TransportSpec":
        if self.sharing == "none" and self.pipelines_per_cell != AUTO:
            raise ValueError("pipelines_per_cell: only pipelines that share form DP-cells: give sharing: temporal")
        return self
