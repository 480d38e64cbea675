"""Bring up the network of each sweep point on this machine alone."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from wanbed.ground.errors import prefixed
from wanbed.runner.emulation.emulation import NetworkOf
from wanbed.runner.emulation.gpu_provisioning import provision_gpus
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.gpus import find_mps
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.testbed import Testbed, bring_up


@dataclass(frozen=True)
class NetworkHere:
    """A network on this machine; its hosts have these real GPUs. ``source`` describes its purpose to people."""

    topology: Topology
    gpus: GpuAssignment | None
    substrate: str
    source: str

    def up(self, dilation: float) -> AbstractContextManager[Testbed]:
        """Bring it up, dilated by a factor. Raise what ``wanbed.testbed.testbed.bring_up`` raises."""
        return bring_up(
            self.topology.dilated(dilation),
            substrate=self.substrate,
            source=self.source,
            gpus=self.gpus,
            dilation=dilation,
        )


def on_this_machine(substrate: str, source: str, log: Log) -> NetworkOf:
    """Return what returns the network of a sweep point on this machine, with the real GPUs that its hosts need.

    It raises what ``provision_gpus`` raises.
    """

    def network_of(point: SweepPoint) -> NetworkHere:
        with prefixed(f"{source}: "):
            gpus = provision_gpus(point)
        if gpus is not None and gpus.most_sharers > 1 and (mps := find_mps()) is not None:
            log(f"CUDA's MPS runs ({mps.pipe_directory}): ranks that share a GPU compute side by side, not in turns")
        return NetworkHere(point.topology, gpus, substrate, source)

    return network_of
