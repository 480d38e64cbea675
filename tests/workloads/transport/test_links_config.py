from typing import Any

import pytest

from workloads.transport.links_config import BoundaryConfig, LinksConfig
from workloads.transport.peer import Peer


def peer(rank: int, **changed: Any) -> Peer:
    return Peer(**{"rank": rank, "host": "h", "address": "127.0.0.1", "port": 1000, "connections": 1} | changed)


VALID = {
    "rank": 2,
    "pipeline": 1,
    "stage": 0,
    "peers": (peer(0), peer(3)),
    "previous": None,
    "following": BoundaryConfig(3, 100, (0, 2), ((1, 0), (0, 0))),
    "ring": (2, 0),
    "microbatches": 1,
    "iterations": 1,
}


def test_ring_neighbours_are_the_previous_and_the_next_rank() -> None:
    assert LinksConfig(**VALID).ring_neighbours == (0, 0)
    wide = LinksConfig(**VALID | {"ring": (0, 2, 4, 6), "peers": (peer(0), peer(3), peer(4))})
    assert wide.ring_neighbours == (0, 4)
    assert LinksConfig(**VALID | {"ring": ()}).ring_neighbours is None


def test_all_reduces_are_those_of_gradients_or_synchronisations() -> None:
    assert LinksConfig(**VALID | {"iterations": 5, "buckets": 2}).all_reduces == 10
    assert LinksConfig(**VALID | {"iterations": 5, "synchronizations": 2}).all_reduces == 2


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rank": -1}, "rank: -1 is below 0"),
        ({"microbatches": 0}, "microbatches: 0 is below 1"),
        ({"peers": (peer(0), peer(3), peer(3))}, "peers: a rank is named twice"),
        ({"peers": (peer(0), peer(2))}, r"peers.1.rank: 2 is this rank itself"),
        ({"peers": (peer(0), peer(3, connections=0))}, r"peers.1.connections: 0 is below 1"),
        ({"peers": (peer(0), peer(3, port=None))}, r"peers.1.port: None is no port to call rank 3 at"),
        ({"peers": (peer(0),)}, r"following.rank: rank 3 is none of the peers"),
        ({"following": BoundaryConfig(3, 100, (0, 4))}, r"following.mates: rank 2 itself is not among them"),
        ({"following": BoundaryConfig(3, 100, (2, 3))}, r"following.mates: rank 3 is of the other stage"),
        ({"following": BoundaryConfig(3, 100, (2, 4))}, r"following.mates: rank 4 is none of the peers"),
        ({"pipeline": 0}, r"following.mates: "),
        ({"microbatches": 2}, r"following.outgoing_turns: not every microbatch of the pipelines 0 to 1 once"),
        ({"synchronizations": 3, "buckets": 2}, "synchronizations: they need a ring that sums no buckets"),
        ({"synchronizations": 3, "ring": ()}, "synchronizations: they need a ring"),
        ({"ring": (2,)}, r"ring: \(2,\) are not two or more ranks"),
        ({"ring": (0, 4)}, "ring: rank 2 itself is not in it"),
        ({"ring": (0, 2, 4)}, "ring: rank 4 is none of the peers"),
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
    valid = {"rank": 3, "transfer_bytes": 100, "mates": (0, 2), "outgoing_turns": ((0, 0), (1, 0))}
    with pytest.raises(ValueError, match=f"^{fault}"):
        BoundaryConfig(**valid | changed)
