from wanbed.testbed.relay.model.timeline import Timeline


def test_events_are_handled_in_the_order_of_their_times_with_these_times() -> None:
    timeline, seen = Timeline(), list[tuple[str, int]]()
    for name, time_ns in (("late", 30), ("early", 10), ("second at 10", 10), ("not yet", 41)):
        timeline.at(time_ns, lambda now_ns, name=name: seen.append((name, now_ns)))  # type: ignore[misc]
    timeline.handle(40)
    assert seen == [("early", 10), ("second at 10", 10), ("late", 30)]
    assert timeline.next_ns == 41


def test_what_follows_from_a_late_event_is_not_late() -> None:
    timeline, seen = Timeline(), list[int]()

    def again(now_ns: int) -> None:
        seen.append(now_ns)
        timeline.at(now_ns + 10, again)

    timeline.at(5, again)
    timeline.handle(28)
    assert seen == [5, 15, 25]


def test_nothing_is_next_without_events() -> None:
    assert Timeline().next_ns is None
