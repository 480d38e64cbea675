"""The conditions of one direction: what replaces them, what dilation does to them, and what arrives at all."""

import pytest

from wanbed.ground.impairments import Impairments
from wanbed.ground.strict_model import InputError, parse_model
from wanbed.testbed.network.links.figures_spec import FiguresSpec
from wanbed.testbed.network.links.link_conditions import LinkConditions, conditions_of

LINK = LinkConditions(10_000_000, 10**9, 10**8, Impairments(jitter_ns=1_000_000, loss=0.25))


def test_values_replace_the_fields_that_they_name() -> None:
    assert LINK.with_values({}) == LINK
    assert LINK.with_values({"latency": 7, "rate": None, "node_pair_rate": 5, "up": False}) == LinkConditions(
        7, None, 5, LINK.impairments, up=False
    )
    assert LINK.with_values({"loss": 0.5}) == LinkConditions(10_000_000, 10**9, 10**8, Impairments(1_000_000, 0.5))
    assert LINK.with_values({"jitter": 3}) == LinkConditions(10_000_000, 10**9, 10**8, Impairments(3, 0.25))


def test_only_what_is_written_replaces_what_was_there() -> None:
    spec = parse_model(FiguresSpec, {"rate": "unlimited", "loss": "50%"}, "wan")
    assert conditions_of(spec, LINK) == LinkConditions(10_000_000, None, 10**8, Impairments(1_000_000, 0.5))
    assert conditions_of(spec) == LinkConditions(impairments=Impairments(loss=0.5))


def test_in_dilated_time_delays_are_longer_and_rates_smaller_but_a_bit_a_second_at_least() -> None:
    assert LINK.dilated(4) == LinkConditions(40_000_000, 250_000_000, 25_000_000, Impairments(4_000_000, 0.25))
    assert LinkConditions(3, 5, 1).dilated(2.5) == LinkConditions(8, 2, 1)
    assert LinkConditions(0, None, None).dilated(2) == LinkConditions()


@pytest.mark.parametrize(
    ("rate", "node_pair_rate", "pair"),
    [(None, None, None), (5, None, 5), (None, 4, 4), (5, 4, 4), (3, 4, 3), (0, 4, 0)],
)
def test_a_node_pair_has_the_smaller_of_its_own_rate_and_the_trunks(
    rate: int | None, node_pair_rate: int | None, pair: int | None
) -> None:
    assert LinkConditions(0, rate, node_pair_rate).pair_rate_bps == pair


def test_nothing_arrives_over_a_link_that_is_down_or_loses_everything() -> None:
    assert LINK.arrives
    assert LinkConditions(impairments=Impairments(loss=0.999)).arrives
    assert not LinkConditions(impairments=Impairments(loss=1.0)).arrives
    assert not LinkConditions(up=False).arrives


def test_a_document_has_every_field_and_says_so_if_a_link_is_down() -> None:
    document = {"latency_ns": 10_000_000, "rate_bps": 10**9, "node_pair_rate_bps": 10**8}
    impairments = {"jitter_ns": 1_000_000, "loss": 0.25}
    assert LINK.document() == document | impairments
    assert LINK.with_values({"up": False}).document() == document | impairments | {"up": False}


def test_a_delay_is_60_s_at_most() -> None:
    assert parse_model(FiguresSpec, {"latency": "60s"}, "wan").latency == 60 * 10**9
    with pytest.raises(InputError, match="60001ms is above the 60s that a link may have"):
        parse_model(FiguresSpec, {"latency": "60001ms"}, "wan")
