"""The plan of an all-reduce by torch's collective: which ranks sum, and over which interface. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

NCCL, GLOO = "nccl", "gloo"
BACKENDS = (NCCL, GLOO)


@dataclass(frozen=True)
class CollectiveConfig:
    """The replicas of one stage, from the point of view of one of them.

    ``hosts`` are the emulated hosts of all replicas in their order, this rank's being ``hosts[position]``; the first
    one's rank keeps the store where they meet, at ``store_address`` and ``store_port``. ``interface`` is the network
    interface of this rank's host that bytes go over. ``timeout_ns`` is how long a sum, or the meeting, may take. Raises
    ValueError naming the field.
    """

    backend: str
    hosts: tuple[str, ...]
    position: int
    interface: str
    store_address: str
    store_port: int
    timeout_ns: int

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend: {self.backend!r} is none of {', '.join(BACKENDS)}")
        if len(self.hosts) < 2:
            raise ValueError(f"hosts: {len(self.hosts)} replica has nothing to sum with, give two or more")
        if not 0 <= self.position < len(self.hosts):
            raise ValueError(f"position: {self.position} is none of the {len(self.hosts)} replicas")
        if not 1 <= self.store_port <= 65535:
            raise ValueError(f"store_port: {self.store_port} is no port")
        if self.timeout_ns < 1:
            raise ValueError(f"timeout_ns: {self.timeout_ns} is below 1")

    @property
    def host(self) -> str:
        """This rank's own host."""
        return self.hosts[self.position]


def collective_environment(plan: CollectiveConfig) -> dict[str, str]:
    """Return the environment that keeps the collective on the emulated network. Set it before the collective is made.

    All emulated hosts are one machine, and NCCL would find that out by the machine's boot id: it would go around every
    emulated link through the GPUs' own connections or shared memory. So every host has an id of its own, the ways
    around sockets are shut, and sockets are those of one interface. Replicas of one emulated host may take any way, as
    GPUs of one real host would. Gloo uses nothing but sockets.
    """
    if plan.backend == GLOO:
        return {"GLOO_SOCKET_IFNAME": plan.interface}
    apart = "1" if len(set(plan.hosts)) > 1 else "0"
    return {
        "NCCL_HOSTID": plan.host,
        "NCCL_P2P_DISABLE": apart,
        "NCCL_SHM_DISABLE": apart,
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET": "Socket",
        # Without the sign any interface whose name begins so would do.
        "NCCL_SOCKET_IFNAME": f"={plan.interface}",
    }


def check_devices(devices: Sequence[str], hosts: Sequence[str]) -> None:
    """Raise ValueError, one line, if two of the replicas, on these ``hosts``, have the same one of the ``devices``."""
    for position, device in enumerate(devices):
        if device in devices[:position]:
            first = hosts[devices.index(device)]
            raise ValueError(
                f"transport.all_reduce: NCCL sums between GPUs, and the replicas on {first} and {hosts[position]} "
                f"share one ({device}): bring more GPUs, or leave all_reduce out"
            )
