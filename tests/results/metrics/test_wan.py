"""What is known of the bytes in a window from counters that are read now and then."""

import pandas as pd

from wanbed.results.metrics import Window, wan_bytes_within


def read(*rows: tuple[int, int], source: str = "east") -> pd.DataFrame:
    """Readings given as (time, bytes) of the link from ``source`` to west."""
    frame = pd.DataFrame(rows, columns=["time_ns", "wire_bytes"])
    return frame.assign(scope="link", source=source, destination="west")


def test_the_bounds_are_the_readings_inside_and_around_the_window() -> None:
    samples = read((0, 0), (10, 100), (20, 250), (30, 400), (40, 900))
    assert wan_bytes_within(samples, Window(15, 35)) == (400 - 250, 900 - 100)
    assert wan_bytes_within(samples, Window(10, 30)) == (300, 300)


def test_a_window_between_two_readings_may_have_carried_nothing_or_all() -> None:
    assert wan_bytes_within(read((0, 0), (10, 100)), Window(3, 6)) == (0, 100)


def test_links_add_up() -> None:
    both = pd.concat((read((0, 0), (10, 100)), read((0, 0), (10, 7), source="south")))
    assert wan_bytes_within(both, Window(0, 10)) == (107, 107)


def test_counters_are_0_at_the_beginning_of_the_trial() -> None:
    assert wan_bytes_within(read((5, 60), (10, 100)), Window(2, 10)) == (40, 100)


def test_node_pairs_do_not_count() -> None:
    assert wan_bytes_within(read((0, 0), (10, 100)).assign(scope="node_pair"), Window(0, 10)) is None


def test_a_window_that_outlasts_the_readings_is_not_known() -> None:
    assert wan_bytes_within(read((0, 0), (10, 100)), Window(0, 11)) is None
