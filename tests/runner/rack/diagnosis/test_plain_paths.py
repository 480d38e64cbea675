from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.rack.diagnosis.plain_paths import PlainPath, rounds


@given(st.integers(0, 17))
def test_every_two_machines_meet_once_and_none_is_in_two_measurements_at_a_time(count: int) -> None:
    names = [f"rack{number}" for number in range(count)]
    found = list(rounds(names))
    assert sorted(tuple(sorted(pair)) for pairs in found for pair in pairs) == sorted(
        tuple(sorted(pair)) for pair in combinations(names, 2)
    )
    for pairs in found:
        busy = [name for pair in pairs for name in pair]
        assert len(set(busy)) == len(busy)


def test_the_bandwidth_of_a_path_is_that_of_its_direction() -> None:
    path = PlainPath("a", "b", 0.1, there_bps=2e9, back_bps=1e9)
    assert (path.bps("a"), path.bps("b")) == (2e9, 1e9)
