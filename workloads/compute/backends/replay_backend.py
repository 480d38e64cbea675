"""Replayed compute: each action takes its known time and needs no GPU."""

from wanbed.workloads.compute.backends.backend import Computation, ComputeBackend, ComputeConfig, RankContext
from wanbed.workloads.compute.replay import ReplayCompute
from wanbed.workloads.compute.replay_synchronization import ReplaySynchronization


class ReplayBackend(ComputeBackend):
    """Takes the times of the experiment file or of a compute profile, and sends bytes that no rank reads."""

    title = "replayed compute"
    takes_known_times = True
    completes_buckets = True
    synchronizes = True
    virtual_stages = True

    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Create the computation that occupies the GPU for the times of ``config``."""
        compute = ReplayCompute(config.costs, context.check, context.pool, context.gpu, config.chunks)
        synchronized = None
        if config.synchronization is not None:
            synchronized = ReplaySynchronization(config.synchronization, config.fragments_bytes, context.pool)
        return Computation(compute, reads_payloads=False, in_buckets=compute, synchronized=synchronized)
