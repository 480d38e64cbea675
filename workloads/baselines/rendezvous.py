"""The rendezvous of a torch baseline's ranks, and the heartbeats that distinguish a lost rank from a slow network.

Ranks find each other by a TCPStore at rank 0, then join Gloo's process groups. Gloo notices a peer whose process has
ended, because its connections close, but only in the ranks that wait for that peer. It does not notice a host that
stops answering, and a timeout on transfers would report a slow link as a lost peer. So each rank writes a heartbeat to
the store once a second, over its own connection, and reads those of the others: a few hundred bytes a second, which no
transfer can delay for long.
"""

import fcntl
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from wanbed.workloads.baselines.baseline_config import BaselineConfig, GlooConfig
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
    place, gloo, ranks = rank_config.place, rank_config.gloo, rank_config.shape.ranks
    timeout_s = gloo.rendezvous_timeout_ns / 1e9
    alarm = threading.Timer(timeout_s + _GRACE_S, on_timeout, [f"the ranks have not met within {timeout_s:g} s"])
    alarm.daemon = True
    alarm.start()
    try:
        store = open_store(
            gloo.store_address,
            gloo.store_port,
            members=ranks,
            is_server=place.rank == 0,
            timeout=timedelta(microseconds=gloo.rendezvous_timeout_ns / 1000),
        )
        store.set(_key(place.rank), f"{place.host} {gloo.listen_address}")
        keys = [_key(rank) for rank in range(ranks)]
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
    place, shape, gloo = rank_config.place, rank_config.shape, rank_config.gloo
    address = interface_address(gloo.interface)
    if address != gloo.listen_address:
        raise ValueError(f"listen_address: {gloo.listen_address}, where {gloo.interface} has {address}")
    os.environ["GLOO_SOCKET_IFNAME"] = gloo.interface
    timeout = timedelta(microseconds=gloo.timeout_ns / 1000)
    dist.init_process_group(
        "gloo",
        store=PrefixStore("gloo", store),
        rank=place.rank,
        world_size=shape.ranks,
        timeout=timeout,
    )
    first = place.pipeline * shape.stages

    def group(ranks: range) -> dist.ProcessGroup | None:
        if len(ranks) == 1:
            return None
        joined = dist.new_group(list(ranks), timeout=timeout, use_local_synchronization=True)
        assert isinstance(joined, dist.ProcessGroup)
        return joined

    return ProcessGroups(
        pipeline=group(range(first, first + shape.stages)),
        replicas=group(range(place.stage, shape.ranks, shape.stages)),
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


_BEAT_S = 1.0


class PeerWatch:
    """Calls ``lost`` with one line, from its own thread, when a rank had no heartbeat for ``gloo.silence_ns``.

    Start it after the rendezvous of all ranks. After ``shutdown`` a missing heartbeat is no fault.
    """

    def __init__(self, rank: int, gloo: GlooConfig, members: Mapping[int, Member], lost: Callable[[str], None]) -> None:
        self._rank = rank
        self._members = members
        self._lost = lost
        self._silence_s = gloo.silence_ns / 1e9
        self._store = TCPStore(
            gloo.store_address,
            gloo.store_port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(microseconds=gloo.silence_ns / 1000),
        )
        self._over = threading.Event()
        self._answered_s = time.monotonic()
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._beating = threading.Thread(target=self._beat, daemon=True, name="peer watch: beats")
        self._judging = threading.Thread(target=self._judge, daemon=True, name="peer watch: silence")

    def start(self) -> None:
        """Start the heartbeats. The first ones of the other ranks are due from now on."""
        self._answered_s = time.monotonic()
        self._beating.start()
        self._judging.start()

    def shutdown(self) -> None:
        """Record in the store that this rank is done. Rank 0, which serves the store, waits for every other rank."""
        self._over.set()
        self._beating.join()
        self._judging.join()
        self._store.set(_done_key(self._rank), "")
        if self._rank == 0:
            self._store.wait([_done_key(rank) for rank in self._members])

    def _beat(self) -> None:
        keys = [_beat_key(rank) for rank in self._members]
        self._heard = dict.fromkeys(self._members, (b"", time.monotonic()))
        count = 0
        try:
            self._store.set(_beat_key(self._rank), str(count))
            self._store.wait(keys)
            while not self._over.wait(_BEAT_S):
                count += 1
                self._store.set(_beat_key(self._rank), str(count))
                beats = self._store.multi_get(keys)
                self._answered_s = now_s = time.monotonic()
                for rank, beat in zip(self._members, beats, strict=True):
                    if beat != self._heard[rank][0]:
                        self._heard[rank] = beat, now_s
        except RuntimeError as fault:
            reason = str(fault).splitlines()[0]
            self._lost(f"{self._members[0]} is lost: it serves the rendezvous store, which does not answer ({reason})")

    def _judge(self) -> None:
        while not self._over.wait(_BEAT_S / 4):
            now_s = time.monotonic()
            if now_s - self._answered_s > self._silence_s:
                self._lost(
                    f"{self._members[0]} is lost: its rendezvous store has not answered for {self._silence_s:g} s"
                )
                return
            for rank, (_, heard_s) in list(self._heard.items()):
                if now_s - heard_s > self._silence_s:
                    self._lost(f"{self._members[rank]} is lost: no heartbeat for {self._silence_s:g} s")
                    return


def _beat_key(rank: int) -> str:
    return f"beat-{rank}"


def _done_key(rank: int) -> str:
    return f"done-{rank}"
