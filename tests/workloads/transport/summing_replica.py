"""A replica that sums over the transport in a thread: in a ring, as a butterfly, along a chain, or as Gloo does."""

import threading
from collections.abc import Callable

import numpy as np

from wanbed.workloads.transport.all_reduce import AllReduce
from wanbed.workloads.transport.butterfly_sum import ButterflyAllReduce
from wanbed.workloads.transport.chain_sum import ChainAllReduce
from wanbed.workloads.transport.event import Closed, Failed, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.gloo_sum import GlooAllReduce
from wanbed.workloads.transport.ring_sum import RingAllReduce

PATIENCE_S = 60


class Replica:
    """A rank's main thread: sums the arrays given, one an iteration, and handles all other events."""

    def __init__(self, end, arrays: list[np.ndarray]) -> None:
        self.end, self.arrays = end, arrays
        self.sum = all_reduce_of(end)
        self.others: list = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            for iteration, array in enumerate(self.arrays):
                data = memoryview(array).cast("B")
                self.sum.run(iteration, data, array.itemsize, adder(array.dtype), self._await_event)
            self.end.transport.close()
            while not any(isinstance(event, Closed) for event in self.others):
                self._await_event()
        except Exception as error:
            self.error = error

    def _await_event(self) -> None:
        event = self.end.events.get(timeout=PATIENCE_S)
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, SegmentReceived | SegmentsSent):
            self.sum.handle(event)
        else:
            self.others.append(event)


def all_reduce_of(end) -> AllReduce:
    rings = end.plan.rings
    if rings.announced:
        return GlooAllReduce(end.plan, end.transport)
    kind = ButterflyAllReduce if rings.butterfly else ChainAllReduce if rings.chained else RingAllReduce
    return kind(end.plan, end.transport)


def adder(dtype: np.dtype) -> Callable[[memoryview, memoryview], None]:
    def add(total: memoryview, part: memoryview) -> None:
        ours = np.frombuffer(total, dtype)
        np.add(ours, np.frombuffer(part, dtype), out=ours)

    return add


def reduce_all(joined, arrays: list[list[np.ndarray]]) -> list[Replica]:
    replicas = [Replica(joined.ends[rank], each) for rank, each in enumerate(arrays)]
    for replica in replicas:
        replica.thread.join()
        if replica.error is not None:
            raise replica.error
    return replicas
