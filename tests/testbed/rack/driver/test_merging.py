"""What machines count of one trunk adds up."""

from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.rack.driver.merging import merged_counters


def test_each_machine_has_its_own_part_of_a_trunk() -> None:
    one = PortCounters("east", "west", Counters(100, 2, 30, 1), {("east-0", "west-0"): Counters(100, 2, 30, 1)})
    other = PortCounters("east", "west", Counters(50, 1, 0, 2), {("east-1", "west-0"): Counters(50, 1, 0, 2)})
    back = PortCounters("west", "east", Counters(7, 1, 0, 0), {("west-0", "east-0"): Counters(7, 1, 0, 0)})
    merged = merged_counters([[one], [other], [back]])
    assert merged == [
        PortCounters(
            "east",
            "west",
            Counters(150, 3, 30, 3),
            {("east-0", "west-0"): Counters(100, 2, 30, 1), ("east-1", "west-0"): Counters(50, 1, 0, 2)},
        ),
        back,
    ]


def test_packets_are_unknown_if_one_machine_does_not_know_them() -> None:
    known = PortCounters("east", "west", Counters(1, 1, 0, 0), {})
    unknown = PortCounters("east", "west", Counters(1, None, 0, 0), {})
    (merged,) = merged_counters([[known], [unknown]])
    assert merged.total == Counters(2, None, 0, 0)
