import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.testbed.measurement.calibration import DownLinkMeasurement, LinkMeasurement
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure

EXACT = LinkMeasurement(
    source="east",
    destination="west",
    scope="wan",
    configured_rtt_ms=80.0,
    measured_rtt_ms=80.0,
    configured_goodput_bps=100e6,
    measured_goodput_bps=100e6,
    impairments={each.column: ComparedFigure(0.0, 0.0) for each in IMPAIRMENTS},
    echo_requests=100,
)


def test_exactly_configured_link_is_within_tolerance() -> None:
    assert EXACT.within_tolerance


@pytest.mark.parametrize(
    ("asked_ms", "measured_ms", "within"),
    [
        (80.0, 81.6, True),
        (80.0, 81.61, False),
        (80.0, 78.4, True),
        (80.0, 78.39, False),
        (10.0, 10.5, True),
        (10.0, 10.51, False),
        (0.1, 0.6, True),
        (0.0, 0.51, False),
    ],
)
def test_an_rtt_may_be_off_by_half_a_millisecond_or_2_percent(
    asked_ms: float, measured_ms: float, within: bool
) -> None:
    assert replace(EXACT, configured_rtt_ms=asked_ms, measured_rtt_ms=measured_ms).within_tolerance is within


@pytest.mark.parametrize(
    ("configured_bps", "measured_bps", "within"),
    [
        (100e6, 97.01e6, True),
        (100e6, 96.99e6, False),
        (100e6, 102.99e6, True),
        (100e6, 103.01e6, False),
        (None, 1.0, True),
        (0.0, 0.0, True),
        (0.0, 1.0, False),
    ],
)
def test_goodput_may_be_off_by_3_percent(configured_bps: float | None, measured_bps: float, within: bool) -> None:
    assert (
        replace(EXACT, configured_goodput_bps=configured_bps, measured_goodput_bps=measured_bps).within_tolerance
        is within
    )


@pytest.mark.parametrize(
    ("asked", "measured", "echoes", "within"),
    [
        # Four standard deviations: 4 x sqrt(0.01 / 2000) = 0.0089.
        (0.01, 0.0188, 2000, True),
        (0.01, 0.0190, 2000, False),
        (0.01, 0.0012, 2000, True),
        (0.05, 0.0, 2000, False),
        (0.0, 0.001, 2000, True),
        (0.0, 0.01, 2000, False),
        (0.0, 1.0, 100, False),
    ],
)
def test_loss_tolerance_is_the_sampling_error(asked: float, measured: float, echoes: int, within: bool) -> None:
    impairments = {**EXACT.impairments, "loss": ComparedFigure(asked, measured)}
    link = replace(EXACT, impairments=impairments, echo_requests=echoes)
    assert link.within_tolerance is within


@pytest.mark.parametrize(
    "unknown",
    [
        {"measured_rtt_ms": math.nan},
        {"measured_goodput_bps": math.nan},
        {"impairments": {**EXACT.impairments, "loss": ComparedFigure(0.0, math.nan)}},
    ],
)
def test_what_could_not_be_measured_is_outside(unknown: dict[str, Any]) -> None:
    assert not replace(EXACT, **unknown).within_tolerance


def test_jitter_is_reported_and_not_judged() -> None:
    impairments = {**EXACT.impairments, "jitter_ms": ComparedFigure(1.0, math.nan)}
    assert replace(EXACT, impairments=impairments).within_tolerance


@given(st.floats(1, 100), st.none() | st.floats(1e3, 1e12))
def test_undilated_times_are_shorter_and_rates_higher(factor: float, goodput_bps: float | None) -> None:
    slow = replace(
        EXACT,
        configured_rtt_ms=80.0 * factor,
        measured_rtt_ms=81.0 * factor,
        configured_goodput_bps=None if goodput_bps is None else goodput_bps / factor,
        measured_goodput_bps=50e6 / factor,
        impairments={
            **EXACT.impairments,
            "jitter_ms": ComparedFigure(2.0 * factor, 3.0 * factor),
            "loss": ComparedFigure(0.01, 0.02),
        },
    )
    quick = slow.undilated(factor)
    assert (quick.configured_rtt_ms, quick.measured_rtt_ms) == (pytest.approx(80), pytest.approx(81))
    assert quick.configured_goodput_bps == (None if goodput_bps is None else pytest.approx(goodput_bps))
    assert quick.measured_goodput_bps == pytest.approx(50e6)
    assert quick.impairments["jitter_ms"] == ComparedFigure(pytest.approx(2), pytest.approx(3))
    assert quick.impairments["loss"] == ComparedFigure(0.01, 0.02)


@pytest.mark.parametrize(
    ("name", "asked", "measured", "within"),
    [
        ("short_ms", 20.0, 21.0, True),
        ("short_ms", 20.0, 18.9, False),
        ("short_ms", 100.0, 103.0, True),
        ("both_ways_ms", 100.0, 103.1, False),
        ("share_bps", 50e6, 51.5e6, True),
        ("share_bps", 50e6, 51.6e6, False),
        ("together_bps", 100e6, 96.9e6, False),
        ("together_bps", 100e6, math.nan, False),
    ],
)
def test_tolerance_of_transfers_is_3_percent_or_a_millisecond(
    name: str, asked: float, measured: float, within: bool
) -> None:
    assert replace(EXACT, transfers={name: ComparedFigure(asked, measured)}).within_tolerance is within


def test_undilated_transfers_are_in_the_time_of_the_configured_network() -> None:
    transfers = {"short_ms": ComparedFigure(40.0, 42.0), "share_bps": ComparedFigure(1e6, 2e6)}
    text = replace(EXACT, transfers=transfers, burst_bytes=3000).undilated(4)
    assert text.transfers == {"short_ms": ComparedFigure(10.0, 10.5), "share_bps": ComparedFigure(4e6, 8e6)}
    assert text.burst_bytes == 3000


@pytest.mark.parametrize(("lost", "within"), [(1.0, True), (0.95, False)])
def test_not_one_echo_may_come_back_from_a_link_that_is_down(lost: float, within: bool) -> None:
    down = DownLinkMeasurement("east", "west", "wan", ComparedFigure(1.0, lost), None, at_ns=8 * 10**9)
    assert down.within_tolerance is within
    assert down.undilated(4.0).condition == "2s, down"
