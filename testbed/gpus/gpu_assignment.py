"""Assign a real GPU to each GPU of the emulated hosts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wanbed.ground.errors import InputError
from wanbed.testbed.network.topology import Topology

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuSeat:
    """An emulated GPU, number ``gpu`` of ``host``, on the real GPU ``uuid``, which ``sharers`` emulated GPUs share."""

    host: str
    gpu: int
    uuid: str
    sharers: int


@dataclass(frozen=True)
class GpuAssignment:
    """The real GPUs of every host, ``uuids[host][gpu]``. A program on a host sees only those of its host.

    ``parents`` is the UUID of the GPU that each MIG instance among them is part of.
    """

    uuids: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, str] = field(default_factory=dict)

    def uuid(self, host: str, gpu: int) -> str:
        """Return the UUID of the real GPU, or MIG instance, of a host's GPU."""
        return self.uuids[host][gpu]

    def chip(self, host: str, gpu: int) -> str:
        """Return the UUID of the whole GPU that a host's GPU is on: of its parent if that is a MIG instance."""
        uuid = self.uuid(host, gpu)
        return self.parents.get(uuid, uuid)

    def environment(self, host: str, gpu: int | None = None) -> dict[str, str]:
        """Return the environment that shows a program one GPU of its host, or all of them if ``gpu`` is None.

        Raise KeyError for an unknown host, IndexError for a GPU that the host does not have.
        """
        uuids = self.uuids[host]
        # CUDA accepts no device twice, and two emulated GPUs of a host may share a real one.
        seen = dict.fromkeys(uuids) if gpu is None else [uuids[gpu]]
        return {VISIBLE_DEVICES: ",".join(seen)}

    def seats(self) -> Iterator[GpuSeat]:
        """Yield every emulated GPU, host by host."""
        sharers = Counter(uuid for uuids in self.uuids.values() for uuid in uuids)
        for host, uuids in self.uuids.items():
            for gpu, uuid in enumerate(uuids):
                yield GpuSeat(host, gpu, uuid, sharers[uuid])

    @property
    def most_sharers(self) -> int:
        """The largest number of emulated GPUs on one real GPU, 0 if no real GPU is used."""
        return max((seat.sharers for seat in self.seats()), default=0)

    def document(self) -> list[dict[str, Any]]:
        """Return every seat in plain JSON types; ``share`` is its fraction of the real GPU."""
        return [
            {"host": seat.host, "gpu": seat.gpu, "uuid": seat.uuid, "share": 1 / seat.sharers} for seat in self.seats()
        ]


def assign_gpus(
    topology: Topology, uuids: Sequence[str], *, sharing: int = 1, parents: Mapping[str, str] | None = None
) -> GpuAssignment:
    """Assign a real GPU to every GPU of every host, serving hosts included; at most ``sharing`` share a real one.

    Real GPUs are assigned round-robin: the GPUs of one host differ as far as there are enough real ones, and the
    numbers of sharers of two real GPUs differ by at most one. ``parents`` has the GPU of each MIG instance among
    ``uuids``. Raise InputError if there are too few.
    """
    wanted = {host.name: host.gpus + host.serving_gpus for host in topology.hosts}
    count = sum(wanted.values())
    if count > len(uuids) * sharing:
        needed = -(-count // len(uuids)) if uuids else 0
        remedy = f"give compute.sharing: {needed}, so that up to {needed} share one" if uuids else "bring GPUs"
        has = f"{len(uuids)} GPU{'' if len(uuids) == 1 else 's'}"
        shared = f", each shared by {sharing} at most" if sharing > 1 else ""
        raise InputError(
            f"compute.sharing: the hosts have {count} GPUs and this machine {has}{shared}: {remedy}, use fewer "
            "hosts, or give compute.device: cpu"
        )
    in_turn = (uuids[seat % len(uuids)] for seat in range(count))
    return GpuAssignment(
        {host: tuple(next(in_turn) for _ in range(gpus)) for host, gpus in wanted.items()}, parents or {}
    )
