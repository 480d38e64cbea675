import pytest

from wanbed.workloads.baselines.rendezvous import Member, connection_fault, interface_address

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
