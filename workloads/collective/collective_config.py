"""The configuration of an all-reduce by torch: its ranks, and the network interface. Needs no torch.

Communication libraries know ways around the emulated network: RDMA, shared memory and NVLink carry bytes that no qdisc
sees. Variables of their environment shut these ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HOST_ID = "NCCL_HOSTID"

_SHUT: Mapping[str, str] = {
    "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "UCX_TLS": "^ib,sm,cuda_ipc",
}
"""The value of each variable that shuts its way. Gloo uses nothing but sockets."""


def nccl_ways(host: str, *, apart: bool) -> dict[str, str]:
    """Return the variables that leave NCCL nothing but sockets between hosts. ``apart``: some ranks are on others.

    Ranks that are all on one emulated host may use what GPUs of one real host would.
    """
    disabled = str(int(apart))
    return {
        _HOST_ID: host,
        **{name: _SHUT[name] for name in ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_MNNVL_ENABLE")},
        "NCCL_P2P_DISABLE": disabled,
        "NCCL_SHM_DISABLE": disabled,
    }


def ucx_environment(interface: str, *, apart: bool) -> dict[str, str]:
    """Return the variables that leave UCX nothing but TCP on the emulated network's interface."""
    return {"UCX_NET_DEVICES": interface, **({"UCX_TLS": _SHUT["UCX_TLS"]} if apart else {})}


def opened_way(name: str, value: str) -> str | None:
    """Return why a variable of a user's, of this value, would let bytes go around the network; None if it would not."""
    if name == _HOST_ID:
        return "hosts on one machine would be one host to NCCL, and not use the network: leave it out"
    if name in _SHUT and value != _SHUT[name]:
        return f"bytes would go around the emulated network, which no qdisc sees: give {_SHUT[name]!r}, or leave it out"
    return None


NCCL, GLOO = "nccl", "gloo"

_BACKENDS = (NCCL, GLOO)

_ALL_REDUCE_TIMEOUT_NS = 600_000_000_000
"""Long: gigabytes over an emulated network may take minutes. The loss of a rank is noticed by others much earlier."""


@dataclass(frozen=True)
class CollectiveConfig:
    """The all-reduce group of one stage's replicas, as one of them sees it.

    - ``hosts``: the emulated hosts of all replicas in their order. This rank's is ``hosts[position]``.
    - ``interface``: the network interface of this rank's host that the collective uses.
    - ``store_address``, ``store_port``: where the first replica's rank serves the rendezvous store.
    - ``timeout_ns``: the limit of the rendezvous.
    - ``all_reduce_timeout_ns``: the limit of each all-reduce.
    - ``shares_gpus``: whether replicas on different hosts may share a GPU, with NCCL.

    Raises ValueError naming the field.
    """

    backend: str
    hosts: tuple[str, ...]
    position: int
    interface: str
    store_address: str
    store_port: int
    timeout_ns: int
    all_reduce_timeout_ns: int = _ALL_REDUCE_TIMEOUT_NS
    shares_gpus: bool = False

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            raise ValueError(f"backend: {self.backend!r} is none of {', '.join(_BACKENDS)}")
        if len(self.hosts) < 2:
            raise ValueError(f"hosts: {len(self.hosts)} replica has nothing to sum with, give two or more")
        if not 0 <= self.position < len(self.hosts):
            raise ValueError(f"position: {self.position} is none of the {len(self.hosts)} replicas")
        if not 1 <= self.store_port <= 65535:
            raise ValueError(f"store_port: {self.store_port} is no port")
        for name in ("timeout_ns", "all_reduce_timeout_ns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")

    @property
    def host(self) -> str:
        """This rank's own host."""
        return self.hosts[self.position]


def collective_environment(config: CollectiveConfig) -> dict[str, str]:
    """Return the environment that keeps the collective on the emulated network. Set it before creating the collective.

    torch's watchdog of NCCL would abort the process without a line of ours, so its timeouts are turned off:
    ``DeviceAllReduce`` has its own.
    """
    if config.backend == GLOO:
        return gloo_environment(config.interface)
    return {
        **nccl_environment(config.host, config.interface, apart=len(set(config.hosts)) > 1),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }


def gloo_environment(interface: str) -> dict[str, str]:
    """Return the environment by which Gloo, which uses only sockets, takes the interface of the emulated network."""
    return {"GLOO_SOCKET_IFNAME": interface}


def nccl_environment(host: str, interface: str, *, apart: bool) -> dict[str, str]:
    """Return the environment that keeps NCCL on the emulated network. ``apart``: some ranks are on other hosts.

    All emulated hosts are one machine, which NCCL detects by the machine's boot id. It would then bypass the emulated
    links through the GPUs' own connections or shared memory. So every emulated host gets its own id, transports other
    than sockets are disabled, and sockets use one interface only. Ranks that are all on one emulated host may use any
    transport, as GPUs of one real host would.
    """
    return {
        **nccl_ways(host, apart=apart),
        # Without the "=", NCCL takes any interface whose name begins with this one.
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "NCCL_SOCKET_FAMILY": "AF_INET",
    }


def check_devices(devices: Sequence[str], hosts: Sequence[str], *, shares_gpus: bool = False) -> None:
    """Raise ValueError, one line, if two replicas use the same device. Both sequences have one entry per replica.

    With ``shares_gpus`` only replicas on one host must not: NCCL tells two GPUs apart by host and bus address.
    """
    for position, device in enumerate(devices):
        for first in range(position):
            if device == devices[first] and not (shares_gpus and hosts[first] != hosts[position]):
                raise ValueError(
                    f"transport.all_reduce: NCCL sums between GPUs, and the replicas on {hosts[first]} and "
                    f"{hosts[position]} share one ({device}): bring more GPUs, or leave all_reduce out"
                )
