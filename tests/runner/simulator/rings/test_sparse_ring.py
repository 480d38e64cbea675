"""Rings of fewer bytes than replicas: replicas do not wait for empty segments, and report free room."""

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.simulator.equal_parts import equal_parts
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.sparse_ring import SparseRing
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import TcpWindow

MS = 1_000_000


def ends_ms(
    latencies_ms: list[int], size_bytes: int, *iterations: list[int], steps: int | None = None
) -> list[list[float]]:
    """Return when each replica has the result, given when it is ready in each iteration; by default of a whole sum."""
    events = EventQueue()
    channels = [
        PrivateChannel(Line(None, latency_ms * MS, headers=False), TcpWindow(2 * latency_ms * MS, None, None))
        for latency_ms in latencies_ms
    ]
    ring = SparseRing(channels, size_bytes, steps or 2 * (len(channels) - 1), events)
    found = [[-1.0] * len(latencies_ms) for _ in iterations]

    def join(now_ns: int, what: tuple[int, int]) -> None:
        iteration, position = what

        def done(_: int, end_ns: int) -> None:
            found[iteration][position] = end_ns / MS

        ring.join(iteration, position, now_ns, done)

    for iteration, ready_ms in enumerate(iterations):
        for position, ready in enumerate(ready_ms):
            events.at(ready * MS, join, (iteration, position))
    while events.handle_next_instant():
        pass
    return found


def test_a_single_byte_goes_around_the_ring() -> None:
    # The last of three replicas has the byte.
    assert ends_ms([10, 10, 10], 1, [0, 0, 0]) == [[40, 20, 30]]


def test_a_reduce_scatter_of_a_single_byte_ends_half_way() -> None:
    # It ends at the second replica, which has the sum then; the first one has only sent its part on.
    assert ends_ms([10, 10, 10], 1, [0, 0, 0], steps=2) == [[10, 20, 0]]


def test_who_is_late_holds_up_only_what_passes_it() -> None:
    # The second is ready late: the byte waits there, and the first, which has sent to it, waits for the second round.
    assert ends_ms([10, 10, 10], 1, [0, 100, 0]) == [[120, 100, 110]]


def test_two_bytes_of_three_replicas_are_on_their_way_side_by_side() -> None:
    assert ends_ms([10, 10, 10], 2, [0, 0, 0]) == [[40, 30, 40]]


def test_a_replica_waits_until_it_knows_that_there_is_room() -> None:
    # What the last replica sends is used 80 ms later, which it knows after 160: until then the byte waits, which has
    # come round in 82, and so does that of the next sum, for what was sent at 160 and used at 240.
    first, second = ends_ms([1, 1, 80], 1, [0, 0, 0], [250, 250, 250])
    assert first == [240, 81, 160]
    assert second == [560, 401, 480]


def test_replicas_with_empty_segments_do_not_stand_for_each_other() -> None:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 4}]},
        "compute": {"forward": "1ms", "activation": "1B", "gradient": "3B"},
        "training": {"stages": 1, "pipelines": 4, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "dp"}],
    }
    assert equal_parts(sweep_point(document).variants[0]) == 1
    document["compute"] = {"forward": "1ms", "activation": "1B", "gradient": "4B"}
    assert equal_parts(sweep_point(document).variants[0]) == 4
