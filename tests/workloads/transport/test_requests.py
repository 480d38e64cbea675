"""When a message begins that waits for its receiver."""

from functools import partial
from itertools import permutations

import pytest

from wanbed.workloads.transport.requests import Requests

HAPPENINGS = [("made", "a"), ("asked", "a"), ("made", "b"), ("asked", "b")]


@pytest.mark.parametrize("order", list(permutations(HAPPENINGS)))
def test_a_message_begins_once_with_the_last_of_being_made_and_being_asked_for(
    order: tuple[tuple[str, str], ...],
) -> None:
    requests = Requests()
    begun: list[str] = []
    for position, (what, key) in enumerate(order):
        if what == "made":
            requests.made(key, partial(begun.append, key))
        else:
            assert requests.asked(key)
        both = [each for each in "ab" if {("made", each), ("asked", each)} <= set(order[: position + 1])]
        assert sorted(begun) == both


def test_a_message_is_asked_for_once_at_a_time() -> None:
    requests = Requests()
    assert requests.asked("a")
    assert not requests.asked("a")
