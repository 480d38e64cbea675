"""Distinguish a lost rank from a slow network, by heartbeats.

Gloo notices a peer whose process has ended, because its connections close, but only in the ranks that wait for that
peer. It does not notice a host that stops answering, and a timeout on transfers would report a slow link as a lost
peer. So each rank writes a heartbeat to the rendezvous store once a second, over its own connection, and reads those of
the others: a few hundred bytes a second, which no transfer can delay for long.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from wanbed.workloads.baselines.baseline_config import BaselineConfig
from wanbed.workloads.baselines.rendezvous import Member

_BEAT_S = 1.0


class PeerWatch:
    """Calls ``lost`` with one line, from its own thread, when a rank had no heartbeat for ``rank_config.silence_ns``.

    Start it after the rendezvous of all ranks. After ``shutdown`` a missing heartbeat is no fault.
    """

    def __init__(self, rank_config: BaselineConfig, members: Mapping[int, Member], lost: Callable[[str], None]) -> None:
        self._rank_config = rank_config
        self._members = members
        self._lost = lost
        self._silence_s = rank_config.silence_ns / 1e9
        self._store = TCPStore(
            rank_config.rendezvous_address,
            rank_config.rendezvous_port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(microseconds=rank_config.silence_ns / 1000),
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
        self._store.set(_done_key(self._rank_config.rank), "")
        if self._rank_config.rank == 0:
            self._store.wait([_done_key(rank) for rank in self._members])

    def _beat(self) -> None:
        keys = [_beat_key(rank) for rank in self._members]
        self._heard = dict.fromkeys(self._members, (b"", time.monotonic()))
        count = 0
        try:
            self._store.set(_beat_key(self._rank_config.rank), str(count))
            self._store.wait(keys)
            while not self._over.wait(_BEAT_S):
                count += 1
                self._store.set(_beat_key(self._rank_config.rank), str(count))
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
