from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.event_queue import EventQueue


@given(st.lists(st.integers(0, 5)))
def test_events_come_in_the_order_of_their_times_and_then_of_their_causes(times: list[int]) -> None:
    events, happened = EventQueue(), []
    for number, time_ns in enumerate(times):
        events.at(time_ns, lambda now_ns, what: happened.append((now_ns, what)), number)
    while events.handle_next_instant():
        pass
    assert happened == sorted((time_ns, number) for number, time_ns in enumerate(times))


def test_what_is_caused_for_the_same_instant_belongs_to_it() -> None:
    events = EventQueue()
    happened: list[int] = []

    def cause(now_ns: int, more: Any) -> None:
        happened.append(now_ns)
        if more:
            events.at(now_ns, cause, more - 1)

    events.at(7, cause, 2)
    events.at(9, cause, 0)
    assert events.handle_next_instant()
    assert happened == [7, 7, 7]
    assert events.now_ns == 7
    assert events.handle_next_instant()
    assert not events.handle_next_instant()
    assert events.now_ns == 9


def test_the_next_instant_can_be_looked_at() -> None:
    events = EventQueue()
    assert events.next_ns is None
    events.at(9, lambda now_ns, _: None, None)
    events.at(7, lambda now_ns, _: None, None)
    assert events.next_ns == 7
