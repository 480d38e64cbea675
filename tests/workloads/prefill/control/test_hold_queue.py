from wanbed.workloads.prefill.control.hold_queue import HoldQueue
from wanbed.workloads.prefill.control.outcome import RequestRecord


def record(number: int) -> RequestRecord:
    return RequestRecord(number, "dc", 1, 0)


def test_who_came_first_is_first_and_no_more_wait_than_may() -> None:
    queue = HoldQueue(2)
    first, second = record(5), record(3)
    queue.add(first, 10)
    assert not queue.full
    queue.add(second, 10)
    assert queue.full
    assert queue.first is first
    queue.remove(first)
    assert queue.first is second
    queue.remove(second)
    assert queue.first is None


def test_each_waits_until_it_would_be_late_and_is_given_out_once() -> None:
    queue = HoldQueue(9)
    records = [record(number) for number in range(3)]
    for waiting, last_start_ns in zip(records, (30, 10, 20), strict=True):
        queue.add(waiting, last_start_ns)
    queue.remove(records[2])
    assert queue.expired(10) == []
    assert queue.expired(11) == [records[1]]
    assert queue.expired(99) == [records[0]]
    assert (queue.expired(99), len(queue)) == ([], 0)
