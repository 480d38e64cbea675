"""Read what RDMA devices have sent before and after a trial: bytes that went around the emulated network."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.running_testbed import RunningTestbed

RDMA_FACT = "rdma_sent_bytes"


class RdmaSampler(Sampler[Mapping[str, int]]):
    """Read the counters of all ports that send, of this machine or of every machine of a rack."""

    interval_s = 60.0
    """Only the first and the last reading count."""

    def __init__(self, read_sent: Callable[[], Mapping[str, int]]) -> None:
        self._read_sent = read_sent

    @classmethod
    def of(cls, testbed: RunningTestbed, _: ExitStack) -> Self | None:
        """Return a sampler, None where no machine has a port that counts."""
        if in_virtual_time():
            return None
        return cls(testbed.rdma_sent_bytes) if testbed.rdma_sent_bytes() else None

    def read(self) -> Mapping[str, int]:
        """Read every port's counter."""
        return self._read_sent()

    def facts(self, readings: Sequence[tuple[int, Mapping[str, int]]]) -> dict[str, Any]:
        """Return how many bytes each port has sent during the trial."""
        first, last = readings[0][1], readings[-1][1]
        return {RDMA_FACT: {name: sent - first.get(name, sent) for name, sent in last.items()}}
