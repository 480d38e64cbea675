"""Name the ways by which communication libraries go around the emulated network, and shut them by their variables.

RDMA, shared memory and NVLink carry bytes that no qdisc sees.
"""

from collections.abc import Mapping

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
