"""Bring up the network of each sweep point on this machine alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from ground.strict_model import prefixed
from runner.emulation.emulation import BringUp
from runner.emulation.gpu_provisioning import provision_gpus
from runner.resolve.experiment import SweepPoint
from runner.runs.run_folder import Log
from testbed.gpus.mps import find_mps
from testbed.running_testbed import RunningTestbed
from testbed.testbed import bring_up


def on_this_machine(substrate: str, source: str, log: Log) -> BringUp:
    """Return what brings a sweep point up on this machine, with the real GPUs that its hosts need.

    It raises what ``testbed.testbed.bring_up`` and ``provision_gpus`` raise.
    """

    @contextmanager
    def up(point: SweepPoint, dilation: float) -> Iterator[RunningTestbed]:
        with prefixed(f"{source}: "):
            gpus = provision_gpus(point)
        if gpus is not None and gpus.most_sharers > 1 and (mps := find_mps()) is not None:
            log(f"CUDA's MPS runs ({mps.pipe_directory}): ranks that share a GPU compute side by side, not in turns")
        topology = point.topology.dilated(dilation)
        with bring_up(topology, substrate=substrate, source=source, gpus=gpus, dilation=dilation) as testbed:
            yield testbed

    return up
