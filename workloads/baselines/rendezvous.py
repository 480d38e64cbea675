"""The rendezvous of a torch baseline's ranks: a TCPStore at rank 0, then Gloo's process groups."""

import fcntl
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from wanbed.workloads.baselines.baseline_config import BaselineConfig
from wanbed.workloads.collective.rendezvous_store import open_store

_SIOCGIFADDR = 0x8915

_GRACE_S = 5.0
"""The seconds after the rendezvous timeout within which torch notices it."""


@dataclass(frozen=True)
class Member:
    """One rank, with the host and address that it wrote to the store."""

    rank: int
    host: str
    address: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, {self.address})"


@dataclass(frozen=True)
class ProcessGroups:
    """The process groups of this rank; None for a group of one.

    ``pipeline``: the stages of its pipeline in order. ``replicas``: the ranks of its stage, one per pipeline.
    """

    pipeline: dist.ProcessGroup | None
    replicas: dist.ProcessGroup | None


def rendezvous(rank_config: BaselineConfig, on_timeout: Callable[[str], None]) -> tuple[TCPStore, Mapping[int, Member]]:
    """Write this rank to the store, which rank 0 serves, and wait for all others. Return the store and the members.

    Raise OSError, TimeoutError naming the missing ranks, or RuntimeError. ``on_timeout`` is called with one line, from
    another thread, if torch waits longer than the configured timeout.
    """
    timeout_s = rank_config.rendezvous_timeout_ns / 1e9
    alarm = threading.Timer(timeout_s + _GRACE_S, on_timeout, [f"the ranks have not met within {timeout_s:g} s"])
    alarm.daemon = True
    alarm.start()
    try:
        store = open_store(
            rank_config.rendezvous_address,
            rank_config.rendezvous_port,
            members=rank_config.world_size,
            is_server=rank_config.rank == 0,
            timeout=timedelta(microseconds=rank_config.rendezvous_timeout_ns / 1000),
        )
        store.set(_key(rank_config.rank), f"{rank_config.host} {rank_config.listen_address}")
        keys = [_key(rank) for rank in range(rank_config.world_size)]
        try:
            store.wait(keys)
        except dist.DistStoreError:
            missing = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
            raise TimeoutError(f"no answer from rank {missing} within {timeout_s:g} s") from None
        entries = [entry.decode().rsplit(" ", 1) for entry in store.multi_get(keys)]
    finally:
        alarm.cancel()
    return store, {rank: Member(rank, host, address) for rank, (host, address) in enumerate(entries)}


def join_groups(rank_config: BaselineConfig, store: TCPStore) -> ProcessGroups:
    """Connect this rank with the others by Gloo, over the configured interface. Raise ValueError or RuntimeError."""
    address = interface_address(rank_config.interface)
    if address != rank_config.listen_address:
        raise ValueError(f"listen_address: {rank_config.listen_address}, where {rank_config.interface} has {address}")
    os.environ["GLOO_SOCKET_IFNAME"] = rank_config.interface
    timeout = timedelta(microseconds=rank_config.timeout_ns / 1000)
    dist.init_process_group(
        "gloo",
        store=PrefixStore("gloo", store),
        rank=rank_config.rank,
        world_size=rank_config.world_size,
        timeout=timeout,
    )
    first = rank_config.pipeline * rank_config.stages

    def group(ranks: range) -> dist.ProcessGroup | None:
        if len(ranks) == 1:
            return None
        joined = dist.new_group(list(ranks), timeout=timeout, use_local_synchronization=True)
        assert isinstance(joined, dist.ProcessGroup)
        return joined

    return ProcessGroups(
        pipeline=group(range(first, first + rank_config.stages)),
        replicas=group(range(rank_config.stage, rank_config.world_size, rank_config.stages)),
    )


def connection_fault(message: str, members: Mapping[int, Member]) -> str:
    """Return Gloo's error message for a broken connection as one line, naming the peer if its address is unique."""
    line = re.sub(r"^\[\S+:\d+\] ", "", message.strip().splitlines()[0]).split(". This is typically")[0]
    at_address = [member for member in members.values() if f"[{member.address}]" in line]
    return f"{at_address[0]} is lost: {line}" if len(at_address) == 1 else line


def interface_address(interface: str) -> str:
    """Return the IPv4 address of a network interface of this host. Raise ValueError if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as fault:
            raise ValueError(f"interface: {interface} has no address here ({fault.strerror})") from None
    return socket.inet_ntoa(answer[20:24])


def _key(rank: int) -> str:
    return f"member-{rank}"
