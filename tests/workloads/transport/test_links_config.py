"""The configuration of a rendezvous."""

from dataclasses import replace
from typing import Any

import pytest

from wanbed.workloads.transport.links_config import (
    BoundariesConfig,
    BoundaryConfig,
    ExchangeConfig,
    LinksConfig,
    RendezvousConfig,
    RingConfig,
    RingsConfig,
    StarConfig,
)
from wanbed.workloads.transport.peer import Peer


def peer(rank: int, **changed: Any) -> Peer:
    valid: dict[str, Any] = {"rank": rank, "host": "h", "address": "127.0.0.1", "port": 1000, "connections": 1}
    return Peer(**valid | changed)


VALID: dict[str, Any] = {
    "rank": 2,
    "pipeline": 1,
    "stage": 0,
    "peers": (peer(0), peer(3)),
    "iterations": 1,
    "boundaries": BoundariesConfig(following=BoundaryConfig(3, 100, (0, 2), ((1, 0), (0, 0)))),
    "rings": RingsConfig((RingConfig((2, 0)),)),
}


def following(*mates: int) -> dict[str, Any]:
    return {"boundaries": BoundariesConfig(following=BoundaryConfig(3, 100, mates))}


def rings(*ranks: tuple[int, ...]) -> dict[str, Any]:
    return {"rings": RingsConfig(tuple(map(RingConfig, ranks)))}


def test_ring_neighbours_are_the_previous_and_the_next_rank() -> None:
    assert RingConfig((2, 0)).neighbours(2) == (0, 0)
    assert RingConfig((0, 2, 4, 6)).neighbours(2) == (0, 4)
    assert RingConfig((0, 2, 4, 6)).neighbours(0) == (6, 2)


@pytest.mark.parametrize(
    ("ring", "fault"),
    [
        ({"ranks": (2,)}, r"ranks: \(2,\) are not two or more"),
        ({"ranks": (2, 0, 2)}, r"ranks: \(2, 0, 2\) are not two or more, each once"),
        ({"ranks": (2, 0), "connections": 0}, "connections: 0 is below 1"),
        ({"ranks": (2, 0), "piece_bytes": 0}, "piece_bytes: 0 is not 1 to 1048576"),
        ({"ranks": (2, 0), "piece_bytes": 2**20 + 1}, "piece_bytes: 1048577 is not 1 to 1048576"),
    ],
)
def test_an_invalid_ring_names_the_field(ring: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        RingConfig(**ring)


RING = RingConfig((0, 1))


def test_all_reduces_are_those_of_gradients_or_synchronisations() -> None:
    assert [RingsConfig((RING,), buckets=buckets).all_reduces(5) for buckets in (0, 1, 2)] == [5, 5, 10]
    assert [RingsConfig((RING,), synchronizations=number).all_reduces(5) for number in (0, 2)] == [0, 2]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"buckets": -1}, "buckets: -1 is below 0"),
        ({"replicas": (), "buckets": 2}, "buckets: 2, and there is no ring"),
        ({"synchronizations": 3, "buckets": 2}, "synchronizations: they need a ring that sums no buckets"),
        ({"synchronizations": 3, "replicas": ()}, "synchronizations: they need a ring"),
    ],
)
def test_invalid_rings_name_the_field(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        RingsConfig(**{"replicas": (RING,)} | changed)


def test_a_chain_lies_along_one_ring_and_sums_all_at_once() -> None:
    ring = RingConfig((0, 1, 2))
    assert RingsConfig((ring,), chained=True).every == (ring,)
    for changes in ({"butterfly": True}, {"buckets": 2}):
        with pytest.raises(ValueError, match="chained: the replicas sum as one along a single ring"):
            RingsConfig((RingConfig((0, 1)),), chained=True, **changes)


def test_announced_chunks_go_round_one_ring_all_at_once() -> None:
    ring = RingConfig((0, 1, 2))
    assert RingsConfig((ring,), announced=True).every == (ring,)
    for changes in ({"butterfly": True}, {"buckets": 2}):
        with pytest.raises(ValueError, match="announced: the replicas sum as one along a single ring"):
            RingsConfig((RingConfig((0, 1)),), announced=True, **changes)
    with pytest.raises(ValueError, match="announced: the segments of a chain are not"):
        RingsConfig((ring,), announced=True, chained=True)


def test_a_butterfly_is_of_pairs() -> None:
    pairs = (RingConfig((0, 2)), RingConfig((1, 2)))
    assert RingsConfig(pairs, butterfly=True).every == pairs
    with pytest.raises(ValueError, match="butterfly: the replicas exchange pair by pair"):
        RingsConfig((*pairs, RingConfig((2, 3, 4))), butterfly=True)


def test_a_stage_has_one_microbatch_at_least() -> None:
    assert BoundariesConfig(microbatches=1).microbatches == 1
    with pytest.raises(ValueError, match=r"^microbatches: 0 is below 1$"):
        BoundariesConfig(microbatches=0)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rank": -1}, "rank: -1 is below 0"),
        ({"peers": (peer(0), peer(3), peer(3))}, "peers: a rank is named twice"),
        ({"peers": (peer(0), peer(2))}, r"peers.1.rank: 2 is this rank itself"),
        ({"peers": (peer(0), peer(3, connections=0))}, r"peers.1.connections: 0 is below 1"),
        ({"peers": (peer(0), peer(3, port=None))}, r"peers.1.port: None is no port to call rank 3 at"),
        ({"peers": (peer(0),)}, r"boundaries.following.rank: rank 3 is none of the peers"),
        (following(0, 4), r"boundaries.following.mates: rank 2 itself is not among them"),
        (following(2, 3), r"boundaries.following.mates: rank 3 is of the other stage"),
        (following(2, 4), r"boundaries.following.mates: rank 4 is none of the peers"),
        ({"pipeline": 0}, r"boundaries.following.mates: "),
        (
            {"boundaries": replace(VALID["boundaries"], microbatches=2)},
            r"boundaries.following.outgoing_turns: not every microbatch of the pipelines 0 to 1 once",
        ),
        (rings((0, 4)), "rings.replicas.0.ranks: rank 2 itself is not among them"),
        (rings((0, 2, 4)), "rings.replicas.0.ranks: rank 4 is none of the peers"),
        (rings((2, 0), (0, 2)), "rings.replicas.1.ranks: rank 0 is in another ring with rank 2"),
    ],
)
def test_an_invalid_links_config_names_the_field(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        LinksConfig(**VALID | changed)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rank": -1}, "rank: -1 is below 0"),
        ({"transfer_bytes": 0}, "transfer_bytes: 0 is below 1"),
        ({"mates": (2, 0)}, "mates: "),
        ({"mates": ()}, "outgoing_turns: only a boundary that is shared has turns"),
        ({"outgoing_turns": ((0, 0, 0),)}, "outgoing_turns: a turn is a pipeline and a microbatch"),
    ],
)
def test_an_invalid_boundary_config_names_the_field(changed: dict[str, Any], fault: str) -> None:
    valid: dict[str, Any] = {"rank": 3, "transfer_bytes": 100, "mates": (0, 2), "outgoing_turns": ((0, 0), (1, 0))}
    with pytest.raises(ValueError, match=f"^{fault}"):
        BoundaryConfig(**valid | changed)


ALONE: dict[str, Any] = {"rank": 1, "pipeline": 0, "stage": 0, "iterations": 1}
"""Rank 1 without a boundary, a ring or a star."""


@pytest.mark.parametrize(
    ("name", "least"),
    [("rank", 0), ("pipeline", 0), ("stage", 0), ("first_iteration", 0), ("iterations", 1), ("window_bytes", 1)],
)
def test_the_least_of_each_count_is_taken_and_one_less_is_not(name: str, least: int) -> None:
    assert getattr(LinksConfig(**ALONE | {"peers": (), name: least}), name) == least
    with pytest.raises(ValueError, match=f"^{name}: {least - 1} is below {least}$"):
        LinksConfig(**ALONE | {"peers": (), name: least - 1})


@pytest.mark.parametrize("name", ["connections", "unsent_bytes", "unread_bytes"])
def test_a_peer_has_one_of_each_at_least(name: str) -> None:
    LinksConfig(**ALONE | {"peers": (peer(0, **{name: 1}),)})
    with pytest.raises(ValueError, match=rf"^peers.0.{name}: 0 is below 1$"):
        LinksConfig(**ALONE | {"peers": (peer(0, **{name: 0}),)})


def test_a_peer_of_a_higher_rank_has_a_port_to_be_called_at() -> None:
    for port in (1, 65_535):
        LinksConfig(**ALONE | {"peers": (peer(2, port=port),)})
    for refused in (None, 0, 65_536):
        with pytest.raises(ValueError, match=f"^peers.0.port: {refused} is no port to call rank 2 at"):
            LinksConfig(**ALONE | {"peers": (peer(2, port=refused),)})
    # One of a lower rank calls.
    LinksConfig(**ALONE | {"peers": (peer(0, port=None),)})


def test_a_rank_exchanges_messages_or_has_boundaries() -> None:
    exchanges = (ExchangeConfig(0, (1, 2), ()),)
    assert LinksConfig(**ALONE | {"peers": (peer(0),), "exchanges": exchanges}).exchanges == exchanges
    with pytest.raises(ValueError, match="exchanges: rank 0 is none of the peers"):
        LinksConfig(**ALONE | {"peers": (peer(2),), "exchanges": exchanges})
    for name in ("previous", "following"):
        boundaries = BoundariesConfig(**{name: BoundaryConfig(0, 1)})
        with pytest.raises(ValueError, match="exchanges: a rank has stage boundaries or exchanges, not both"):
            LinksConfig(**ALONE | {"peers": (peer(0),), "exchanges": exchanges, "boundaries": boundaries})


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"outgoing_bytes": (1, 0)}, "outgoing_bytes: a message has 1 byte at least"),
        ({"incoming_bytes": (0,)}, "incoming_bytes: a message has 1 byte at least"),
        ({"connections": 0}, "connections: 0 is below 1"),
    ],
)
def test_an_invalid_exchange_names_the_field(changed: dict[str, Any], fault: str) -> None:
    valid: dict[str, Any] = {"rank": 0, "outgoing_bytes": (1,), "incoming_bytes": ()}
    with pytest.raises(ValueError, match=f"^{fault}"):
        ExchangeConfig(**valid | changed)


def test_a_boundary_has_one_connection_at_least() -> None:
    assert BoundaryConfig(0, 1).connections == 1
    with pytest.raises(ValueError, match="connections: 0 is below 1"):
        BoundaryConfig(0, 1, connections=0)


def test_a_star_is_of_this_rank_and_its_peers() -> None:
    star = StarConfig((0, 1, 2), (10,), 1, quorum=2, state_bytes=5)
    assert LinksConfig(**ALONE | {"peers": (peer(0),), "star": star}).star == star
    refused: list[tuple[dict[str, Any], str]] = [
        ({"peers": (peer(2),)}, "star: rank 0 is none of the peers"),
        ({"rank": 0, "peers": (peer(1),)}, "star: rank 2 is none of the peers"),
        ({"rank": 5, "peers": (peer(0),)}, "star: rank 5 itself is not in it"),
    ]
    for changed, fault in refused:
        with pytest.raises(ValueError, match=f"^{fault}"):
            LinksConfig(**ALONE | {"star": star} | changed)


def test_only_a_replica_of_a_star_that_does_not_gather_comes_back() -> None:
    star = StarConfig((0, 1), (10,), 1, quorum=1, state_bytes=5, joins=True)
    assert LinksConfig(**ALONE | {"peers": (peer(0),), "star": star}).star == star
    with pytest.raises(ValueError, match=r"^star\.joins: only a replica comes back, not the one that gathers$"):
        LinksConfig(**ALONE | {"rank": 0, "peers": (peer(1),), "star": star})
    with pytest.raises(ValueError, match=r"^joins: a replica comes back with what it begins with: give state_bytes$"):
        StarConfig((0, 1), (10,), 1, quorum=1, joins=True)


def test_a_replica_comes_back_to_the_one_that_gathers_and_calls_it() -> None:
    star = StarConfig((0, 1, 2), (10,), 1, quorum=1, state_bytes=5)
    links = LinksConfig(**ALONE | {"peers": (peer(0, port=None), peer(3)), "star": star})
    back = links.joining({0: 20_000})
    assert back.peers == (peer(0, port=20_000),)
    assert back.star == replace(star, joins=True)
    with pytest.raises(ValueError, match=r"^star: only a replica of a star comes back, and there is none$"):
        LinksConfig(**ALONE | {"peers": (peer(0),)}).joining({0: 20_000})


RENDEZVOUS: dict[str, object] = {"listen_address": "10.1.0.1", "listen_port": 29_501, "run_token": "00" * 16}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"listen_port": 0}, "listen_port: 0 is no port to listen on"),
        ({"run_token": "00"}, "run_token: write 16 bytes in hexadecimal"),
        ({"run_token": "no"}, "run_token: write 16 bytes in hexadecimal"),
        ({"timeout_ns": 0}, "timeout_ns: 0 is below 1"),
        ({"peer_timeout_s": 7}, "peer_timeout_s: 7 is below 8"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(changed: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}$"):
        RendezvousConfig(**RENDEZVOUS | changed)  # type: ignore[arg-type]


def star(**changed: Any) -> StarConfig:
    of: dict[str, Any] = {"ranks": (4, 0, 2), "sizes_bytes": (10, 20), "sums": 3}
    return StarConfig(**of | changed)


def test_the_first_gathers_and_the_others_know_only_it() -> None:
    assert star().gatherer == 4
    assert star().peers_of(4) == (0, 2)
    assert star().peers_of(0) == star().peers_of(2) == (4,)


def test_sums_are_of_one_fragment_after_the_other() -> None:
    assert star().fragments == 2
    assert [star().size_bytes(number) for number in range(4)] == [10, 20, 10, 20]


@pytest.mark.parametrize(
    "changed",
    [
        {"ranks": (4, 0)},
        {"sizes_bytes": (1,)},
        {"sums": 0},
        {"quorum": 1},
        {"quorum": 3},
        {"connections": 1},
        {"quorum": 3, "state_bytes": 1},
    ],
)
def test_the_least_and_the_most_are_taken(changed: dict[str, Any]) -> None:
    for name, value in changed.items():
        assert getattr(star(**changed), name) == value


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"ranks": (4,)}, r"ranks: \(4,\) are not two or more"),
        ({"ranks": (4, 0, 4)}, r"ranks: \(4, 0, 4\) are not two or more ranks, each once"),
        ({"sizes_bytes": ()}, "sizes_bytes"),
        ({"sizes_bytes": (1, 0)}, "sizes_bytes"),
        ({"sums": -1}, "sums: -1 is negative"),
        ({"quorum": 0}, "quorum: 0 is not 1 to 3"),
        ({"quorum": 4}, "quorum: 4 is not 1 to 3"),
        ({"connections": 0}, "connections: 0 is below 1"),
        ({"quorum": 1, "state_bytes": -1}, "state_bytes: -1 is negative"),
        ({"state_bytes": 1}, "state_bytes: replicas come back only where the others go on"),
    ],
)
def test_what_is_beyond_names_the_field(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}"):
        star(**changed)
