"""Watches of several ranks in one process, on a real store."""

from collections.abc import Iterator
from datetime import timedelta
from queue import Empty, SimpleQueue

import pytest
from torch.distributed import TCPStore

from tests.support.workloads.loopback_ranks import free_ports
from tests.workloads.baselines.torch_world import LOOPBACK
from wanbed.workloads.baselines.baseline_config import GlooConfig
from wanbed.workloads.baselines.rendezvous import Member, PeerWatch, connection_fault, interface_address

MEMBERS = {0: Member(0, "east-0", "10.0.0.1"), 1: Member(1, "west-0", "10.1.0.1"), 2: Member(2, "west-1", "10.1.0.11")}

GLOO = (
    "[/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.1]:3205. This is typically caused by a "
    "remote worker crashing. Check the logs of the remote worker before reporting an error.\n  frame #0"
)


def test_a_broken_connection_is_reported_with_the_rank_at_its_other_end() -> None:
    assert connection_fault(GLOO, MEMBERS) == (
        "rank 1 (west-0, 10.1.0.1) is lost: Connection closed by peer [10.1.0.1]:3205"
    )


def test_where_several_ranks_share_an_address_none_is_blamed() -> None:
    shared = MEMBERS | {3: Member(3, "west-0", "10.1.0.1")}
    assert connection_fault(GLOO, shared) == "Connection closed by peer [10.1.0.1]:3205"


def test_a_message_without_an_address_is_unchanged() -> None:
    assert connection_fault("Application timeout caused pair closure\n", MEMBERS) == (
        "Application timeout caused pair closure"
    )


def test_the_loopback_interface_has_its_address() -> None:
    assert interface_address("lo") == "127.0.0.1"


def test_an_interface_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="interface: eth77 has no address here"):
        interface_address("eth77")


LOOPBACK_MEMBERS = {rank: Member(rank, f"host-{rank}", LOOPBACK) for rank in range(3)}


class Watched:
    """Three ranks' watches on one store, each with what it has been told."""

    def __init__(self) -> None:
        port = free_ports(1)[0]
        self.store = TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))
        self.losses: list[SimpleQueue[str]] = [SimpleQueue() for _ in LOOPBACK_MEMBERS]
        gloo = GlooConfig(LOOPBACK, "lo", LOOPBACK, port, silence_ns=2_500_000_000)
        self.watches = [PeerWatch(rank, gloo, LOOPBACK_MEMBERS, self.losses[rank].put) for rank in LOOPBACK_MEMBERS]


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    for watch in watched.watches:
        watch.start()
    yield watched
    for watch in reversed(watched.watches):
        watch.shutdown()


def test_every_rank_names_the_silent_rank(watched: Watched) -> None:
    watched.watches[2].shutdown()
    silence = f"rank 2 (host-2, {LOOPBACK}) is lost: no heartbeat for 2.5 s"
    assert [watched.losses[rank].get(timeout=20) for rank in (0, 1)] == [silence] * 2
    assert watched.losses[2].empty()


def test_live_ranks_are_never_reported_lost(watched: Watched) -> None:
    for losses in watched.losses:
        with pytest.raises(Empty):
            losses.get(timeout=1.5)
