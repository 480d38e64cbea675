"""Let the ranks of a torch peer find each other: a TCPStore at rank 0, then Gloo's process groups."""

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

from workloads.baselines.baseline_config import BaselineConfig
from workloads.baselines.rendezvous_store import open_store

_SIOCGIFADDR = 0x8915

_GRACE_S = 5.0
"""How much longer than the meeting's timeout torch may take to notice that it has passed."""


@dataclass(frozen=True)
class Member:
    """One rank of the world, as it entered itself in the store."""

    rank: int
    host: str
    address: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, {self.address})"


@dataclass(frozen=True)
class ProcessGroups:
    """The groups this rank belongs to; None where it would be alone.

    ``pipeline`` holds the stages of its pipeline in order, ``replicas`` the ranks of its stage, one a pipeline.
    """

    pipeline: dist.ProcessGroup | None
    replicas: dist.ProcessGroup | None


def rendezvous(plan: BaselineConfig, late: Callable[[str], None]) -> tuple[TCPStore, Mapping[int, Member]]:
    """Enter this rank in the store, which rank 0 keeps, and wait until all have. Returns every member by its rank.

    Raises OSError, TimeoutError naming the ranks that did not come, and RuntimeError. ``late`` is called with one line,
    from another thread, if torch waits longer than the plan's timeout.
    """
    patience_s = plan.rendezvous_timeout_ns / 1e9
    alarm = threading.Timer(patience_s + _GRACE_S, late, [f"the ranks have not met within {patience_s:g} s"])
    alarm.daemon = True
    alarm.start()
    try:
        store = open_store(
            plan.rendezvous_address,
            plan.rendezvous_port,
            members=plan.world_size,
            keeps_it=plan.rank == 0,
            timeout=timedelta(microseconds=plan.rendezvous_timeout_ns / 1000),
        )
        store.set(_key(plan.rank), f"{plan.host} {plan.listen_address}")
        keys = [_key(rank) for rank in range(plan.world_size)]
        try:
            store.wait(keys)
        except dist.DistStoreError:
            missing = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
            raise TimeoutError(f"no word of rank {missing} within {patience_s:g} s") from None
        entries = [entry.decode().rsplit(" ", 1) for entry in store.multi_get(keys)]
    finally:
        alarm.cancel()
    return store, {rank: Member(rank, host, address) for rank, (host, address) in enumerate(entries)}


def join_groups(plan: BaselineConfig, store: TCPStore) -> ProcessGroups:
    """Connect this rank with the others over Gloo, on the plan's interface. Raises ValueError and RuntimeError."""
    address = interface_address(plan.interface)
    if address != plan.listen_address:
        raise ValueError(f"listen_address: {plan.listen_address}, where {plan.interface} bears {address}")
    os.environ["GLOO_SOCKET_IFNAME"] = plan.interface
    timeout = timedelta(microseconds=plan.timeout_ns / 1000)
    dist.init_process_group(
        "gloo",
        store=PrefixStore("gloo", store),
        rank=plan.rank,
        world_size=plan.world_size,
        timeout=timeout,
    )
    first = plan.pipeline * plan.stages

    def group(ranks: range) -> dist.ProcessGroup | None:
        if len(ranks) == 1:
            return None
        joined = dist.new_group(list(ranks), timeout=timeout, use_local_synchronization=True)
        assert isinstance(joined, dist.ProcessGroup)
        return joined

    return ProcessGroups(
        pipeline=group(range(first, first + plan.stages)),
        replicas=group(range(plan.stage, plan.world_size, plan.stages)),
    )


def connection_fault(words: str, members: Mapping[int, Member]) -> str:
    """Return Gloo's words of a broken connection, in one line, with the rank of the peer where the address shows it."""
    line = re.sub(r"^\[\S+:\d+\] ", "", words.strip().splitlines()[0]).split(". This is typically")[0]
    at_address = [member for member in members.values() if f"[{member.address}]" in line]
    return f"{at_address[0]} is lost: {line}" if len(at_address) == 1 else line


def interface_address(interface: str) -> str:
    """Return the IPv4 address of a network interface of this host. Raises ValueError if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as fault:
            raise ValueError(f"interface: {interface} bears no address here ({fault.strerror})") from None
    return socket.inet_ntoa(answer[20:24])


def _key(rank: int) -> str:
    return f"member-{rank}"
