from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.measurement.transfer_calibration import filling_pairs, spread_pairs, together_bytes, windows_bytes
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.topology import Datacenter, Host

SIZES = st.integers(1, 12)


def datacenter(name: str, hosts: int) -> Datacenter:
    return Datacenter(name, 0, tuple(Host(f"{name}{index}", name, index, 1) for index in range(hosts)))


@given(SIZES, SIZES)
def test_every_pair_is_listed_once_and_the_first_ones_are_on_different_hosts(here: int, there: int) -> None:
    sources, destinations = ([f"{name}{index}" for index in range(size)] for name, size in (("e", here), ("w", there)))
    pairs = spread_pairs(sources, destinations)
    assert sorted(pairs) == sorted(product(sources, destinations))
    first = pairs[: min(here, there)]
    assert len({source for source, _ in first}) == len({destination for _, destination in first}) == len(first)


@pytest.mark.parametrize(
    ("hosts", "trunk_bps", "pair_bps", "port_bps", "count"),
    [
        ((2, 2), 100, None, None, 2),
        ((2, 2), None, 100, None, 0),
        ((1, 1), 100, None, None, 0),
        ((2, 3), 100, 30, None, 4),
        # Two ports of half the trunk: of three pairs two share one, of four each has two. And of less.
        ((2, 2), 100, 50, 50, 4),
        ((2, 2), 100, 60, 50, 2),
        ((2, 2), 100, 60, 49, 0),
        # Two pairs at one port get a trunk's rate through it only if it has that.
        ((2, 1), 100, 60, 100, 2),
        ((2, 1), 100, 60, 99, 0),
    ],
)
def test_pairs_fill_a_trunk_where_ports_leave_each_its_share(
    hosts: tuple[int, int], trunk_bps: int | None, pair_bps: int | None, port_bps: int | None, count: int
) -> None:
    conditions = LinkConditions(rate_bps=trunk_bps, node_pair_rate_bps=pair_bps)
    found = filling_pairs(datacenter("e", hosts[0]), datacenter("w", hosts[1]), conditions, port_bps)
    assert len(found) == count


def test_buffers_end_where_windows_end_and_the_flight_with_them() -> None:
    # 100 Gbit/s over 80 ms hold 1 GB.
    flight_bytes, buffer_bytes = windows_bytes(2**24, 100 * 10**9, 0.08)
    assert 3 * flight_bytes == buffer_bytes <= 2**30
    assert flight_bytes > 2**28


def test_a_line_that_holds_less_has_three_times_that_for_its_buffers() -> None:
    assert windows_bytes(2**16, 10**9, 0.08) == (10_000_000, 30_000_000)


@given(st.integers(1, 10**15), st.integers(1, 2**30))
def test_trunk_transfer_is_many_grains_or_not_measured(trunk_bps: int, grain_bytes: int) -> None:
    total_bytes = together_bytes(trunk_bps, 2**14, grain_bytes)
    if total_bytes is None:
        assert 8 * 100 * grain_bytes > 4 * trunk_bps
    else:
        assert total_bytes >= 100 * grain_bytes
