"""Distinguish a lost rank from a slow network.

Gloo notices a peer whose process has ended, since its connections close, but only in the ranks that wait for it. It
does not notice a host that falls silent, and a timeout on a transfer would take a slow link for a lost peer. So each
rank writes once a second to the rendezvous store that it lives, over a connection of its own, and reads when the
others did: a few hundred bytes a second that no transfer can hold up for long.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from workloads.baselines.baseline_config import BaselineConfig
from workloads.baselines.rendezvous import Member

_BEAT_S = 1.0


class PeerWatch:
    """Calls ``lost`` once, from a thread of its own, when a rank has not been heard of for ``plan.silence_ns``.

    ``lost`` receives one line. Start it when all ranks have met; from ``farewell`` on silence is no fault.
    """

    def __init__(self, plan: BaselineConfig, members: Mapping[int, Member], lost: Callable[[str], None]) -> None:
        self._plan = plan
        self._members = members
        self._lost = lost
        self._silence_s = plan.silence_ns / 1e9
        self._store = TCPStore(
            plan.rendezvous_address,
            plan.rendezvous_port,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(microseconds=plan.silence_ns / 1000),
        )
        self._over = threading.Event()
        self._answered_s = time.monotonic()
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._beating = threading.Thread(target=self._beat, daemon=True, name="peer watch: beats")
        self._judging = threading.Thread(target=self._judge, daemon=True, name="peer watch: silence")

    def start(self) -> None:
        """Begin; the first beats of the others are due now."""
        self._answered_s = time.monotonic()
        self._beating.start()
        self._judging.start()

    def shutdown(self) -> None:
        """Enter in the store that this rank is done. Rank 0, which keeps the store, waits for every other rank."""
        self._over.set()
        self._beating.join()
        self._judging.join()
        self._store.set(_done_key(self._plan.rank), "")
        if self._plan.rank == 0:
            self._store.wait([_done_key(rank) for rank in self._members])

    def _beat(self) -> None:
        keys = [_beat_key(rank) for rank in self._members]
        self._heard = dict.fromkeys(self._members, (b"", time.monotonic()))
        count = 0
        try:
            self._store.set(_beat_key(self._plan.rank), str(count))
            self._store.wait(keys)
            while not self._over.wait(_BEAT_S):
                count += 1
                self._store.set(_beat_key(self._plan.rank), str(count))
                beats = self._store.multi_get(keys)
                self._answered_s = now_s = time.monotonic()
                for rank, beat in zip(self._members, beats, strict=True):
                    if beat != self._heard[rank][0]:
                        self._heard[rank] = beat, now_s
        except RuntimeError as fault:
            reason = str(fault).splitlines()[0]
            self._lost(f"{self._members[0]} is lost: it keeps the rendezvous store, which does not answer ({reason})")

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
                    self._lost(f"{self._members[rank]} is lost: nothing heard of it for {self._silence_s:g} s")
                    return


def _beat_key(rank: int) -> str:
    return f"beat-{rank}"


def _done_key(rank: int) -> str:
    return f"done-{rank}"
