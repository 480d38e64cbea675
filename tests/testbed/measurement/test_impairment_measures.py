import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.impairments import IMPAIRMENTS, Impairments
from wanbed.testbed.hosts.ping import PingResult
from wanbed.testbed.measurement.impairment_measures import (
    MEASURES,
    compare,
    one_way,
    one_way_jitter_ms,
    udp_goodput_bps,
)
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure


def test_every_impairment_has_a_measure() -> None:
    assert MEASURES.keys() == {each.field for each in IMPAIRMENTS}


@given(st.floats(1, 1e12), st.floats(0, 1), st.integers(0, 10**9))
def test_udp_goodput_is_1448_of_1490_bytes_less_losses(rate_bps: float, loss: float, jitter_ns: int) -> None:
    goodput_bps = udp_goodput_bps(rate_bps, Impairments(jitter_ns, loss))
    assert goodput_bps == pytest.approx(rate_bps * 1448 / 1490 * (1 - loss))


@given(st.floats(0, 1))
def test_one_way_loss_follows_from_round_trip_loss(loss: float) -> None:
    assert one_way(1 - (1 - loss) ** 2) == pytest.approx(loss, abs=1e-7)


@pytest.mark.parametrize("half_width_ms", [0.0, 0.5, 20.0])
def test_jitter_is_the_half_width_of_the_uniform_delay_each_way(half_width_ms: float) -> None:
    steps = [half_width_ms * (2 * (step + 0.5) / 200 - 1) for step in range(200)]
    round_trips = [there + back for there in steps for back in steps]
    deviation_ms = math.sqrt(sum(each**2 for each in round_trips) / len(round_trips))
    assert one_way_jitter_ms(deviation_ms) == pytest.approx(half_width_ms, rel=1e-3)


def test_an_impairment_is_compared_in_the_unit_of_its_column() -> None:
    echoes = PingResult(100, (39.0, 41.0) * 32)
    link = Impairments(jitter_ns=1_500_000, loss=0.2)
    found = compare(link, link, echoes)
    assert found["jitter_ms"] == ComparedFigure(1.5, pytest.approx(math.sqrt(1.5)))
    assert found["loss"] == ComparedFigure(0.2, pytest.approx(0.2))
