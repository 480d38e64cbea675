"""Replayed compute: each action takes its known time and needs no GPU.

Replicas that train alone exchange messages of the right sizes, without computation.
"""

from collections.abc import Sequence

from wanbed.workloads.compute.backends.backend import Computation, ComputeBackend, ComputeConfig, RankContext
from wanbed.workloads.compute.compute import SynchronizedCompute
from wanbed.workloads.compute.replay import ReplayCompute
from wanbed.workloads.synchronization.synchronization import Synchronization
from wanbed.workloads.transport.receive_buffers import BufferPool


class ReplaySynchronization(SynchronizedCompute):
    """Sends unwritten memory of ``pool`` in place of pseudo-gradients: ``fragments_bytes`` are their encoded sizes.

    Encoding, adding and the outer step take no time.
    """

    def __init__(self, rules: Synchronization, fragments_bytes: Sequence[int], pool: BufferPool) -> None:
        self._rules = rules
        self._fragments_bytes = tuple(fragments_bytes)
        self._pool = pool
        self._buffer = pool.take(max(self._fragments_bytes))

    @property
    def rules(self) -> Synchronization:
        """The rules of the configuration."""
        return self._rules

    def encode(self, fragment: int) -> None:
        """Do nothing: the memory stays unwritten."""

    def encoded(self, fragment: int) -> memoryview:
        """Return memory of the fragment's encoded size, the same for all: one fragment at a time is under way."""
        return self._buffer[: self._fragments_bytes[fragment]]

    def add_encoded(self, total: memoryview, part: memoryview) -> None:
        """Do nothing: no rank reads the bytes."""

    def apply(self, fragment: int, parts: int) -> None:
        """Do nothing: there are no parameters."""

    def state(self, size_bytes: int) -> memoryview:
        """Return unwritten memory: no rank reads it."""
        return self._pool.take(size_bytes)

    def take_state(self, state: memoryview) -> None:
        """Give the memory back."""
        self._pool.give_back(state)


class ReplayBackend(ComputeBackend):
    """Takes the times of the experiment file or of a compute profile, and sends bytes that no rank reads."""

    title = "replayed compute"
    takes_known_times = True
    completes_buckets = True
    sums_flushes = True
    synchronizes = True
    encodes = True
    virtual_stages = True

    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Create the computation that occupies the GPU for the times of ``config``."""
        compute = ReplayCompute(config.costs, context.check, context.pool, context.gpu, config.chunks)
        synchronized = None
        if config.synchronization is not None:
            synchronized = ReplaySynchronization(config.synchronization, config.fragments_bytes, context.pool)
        return Computation(compute, reads_payloads=False, synchronized=synchronized)
