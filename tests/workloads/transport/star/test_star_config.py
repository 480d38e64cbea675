"""What a star may be: its limits from both sides, who gathers, and which sum has which size."""

from typing import Any

import pytest

from wanbed.workloads.transport.star.star_config import StarConfig


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
