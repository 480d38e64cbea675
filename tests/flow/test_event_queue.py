from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.events import run_all
from wanbed.flow.event_queue import EventQueue


@given(st.lists(st.integers(0, 5)))
def test_events_come_in_the_order_of_their_times_and_then_of_their_causes(times: list[int]) -> None:
    events, happened = EventQueue(), []
    for number, time_ns in enumerate(times):
        events.at(time_ns, lambda now_ns, what: happened.append((now_ns, what)), number)
    run_all(events)
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


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=20))
def test_an_event_of_a_turn_comes_where_it_would_have_been_added(wanted: list[tuple[int, bool]]) -> None:
    events, happened = EventQueue(), []
    late: list[tuple[int, int, int]] = []

    def happens(_: int, number: int) -> None:
        happened.append(number)

    def adds(now_ns: int, _: Any) -> None:
        for time_ns, turn, number in late:
            if time_ns == now_ns:
                events.at_turn(time_ns, turn, happens, number)

    for time_ns in range(3):
        events.first_at(time_ns, adds, None)
    for number, (time_ns, is_late) in enumerate(wanted):
        if is_late:
            late.append((time_ns, events.take_turns(1), number))
        else:
            events.at(time_ns, happens, number)
    late.reverse()
    run_all(events)
    assert happened == [number for _, number in sorted((time_ns, number) for number, (time_ns, _) in enumerate(wanted))]


def test_an_instant_may_be_added_to_when_it_is_over() -> None:
    events, happened = EventQueue(), []
    for number in (1, 2):
        events.at(5, lambda _, number: happened.append(number), number)
    assert events.handle_next_instant()
    turn = events.take_turns(1)
    events.at(5, lambda _, number: happened.append(number), 4)
    events.at_turn(5, turn, lambda _, number: happened.append(number), 3)
    assert events.handle_next_instant()
    assert happened == [1, 2, 3, 4]


def test_the_next_instant_can_be_looked_at() -> None:
    events = EventQueue()
    assert events.next_ns is None
    events.at(9, lambda now_ns, _: None, None)
    events.at(7, lambda now_ns, _: None, None)
    assert events.next_ns == 7


def test_an_event_of_an_earlier_turn_comes_first_of_a_later_instant_although_events_of_this_one_are_done() -> None:
    events, happened = EventQueue(), []

    def happens(_: int, number: int) -> None:
        happened.append(number)

    def adds(_: int, turn: int) -> None:
        events.at_turn(9, turn, happens, 1)

    turn = events.take_turns(1)
    events.at(5, happens, 0)
    events.at(5, adds, turn)
    events.at(9, happens, 2)
    run_all(events)
    assert happened == [0, 1, 2]


def test_events_until_a_time_are_handled_late_with_their_own_times_and_what_follows_is_not_late() -> None:
    events, happened = EventQueue(), list[int]()

    def again(now_ns: int, _: None) -> None:
        happened.append(now_ns)
        events.at(now_ns + 10, again, None)

    events.at(5, again, None)
    events.handle_until(28)
    assert happened == [5, 15, 25]
    assert events.next_ns == 35


def test_an_event_of_the_past_is_handled_next() -> None:
    events, happened = EventQueue(), list[tuple[str, int]]()
    for name, time_ns in (("at 30", 30), ("at 40", 40)):
        events.at(time_ns, lambda now_ns, what: happened.append((what, now_ns)), name)
    events.handle_until(30)
    events.at(20, lambda now_ns, what: happened.append((what, now_ns)), "at 20")
    events.handle_until(40)
    assert happened == [("at 30", 30), ("at 20", 20), ("at 40", 40)]
