"""Decide whether what was measured of links at one sweep point still holds at another."""

from dataclasses import replace

import pytest

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.runner.emulation.networks.calibration import MAX_AGE_S, Calibration
from wanbed.testbed.measurement.calibration import LinkMeasurement
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure

REPORTED = {"qdiscs": {"east wan1": "netem delay 20ms"}, "sysctls": {"net.ipv4.tcp_rmem": "4096 131072 6291456"}}
BEGAN_S = 1000.0


def link(rtt_ms: float) -> LinkMeasurement:
    unimpaired = {each.column: ComparedFigure(0.0, 0.0) for each in IMPAIRMENTS}
    return LinkMeasurement("east", "west", "wan", 40.0, rtt_ms, None, 1e9, unimpaired, 100)


CALIBRATION = Calibration(2, {"training.microbatches": "4"}, "wb-1", REPORTED, BEGAN_S, (link(40.0), link(40.1)))


def test_links_of_a_network_that_stayed_up_are_not_measured_again() -> None:
    assert CALIBRATION.holds("wb-1", dict(REPORTED), BEGAN_S + 1)


@pytest.mark.parametrize(("age_s", "holds"), [(MAX_AGE_S, True), (MAX_AGE_S + 1, False)])
def test_they_are_measured_again_after_ten_minutes(age_s: float, holds: bool) -> None:
    assert MAX_AGE_S == 600
    assert CALIBRATION.holds("wb-1", REPORTED, BEGAN_S + age_s) is holds


def test_a_network_that_was_brought_up_anew_is_measured_anew_even_if_it_reads_the_same() -> None:
    assert not CALIBRATION.holds("wb-2", REPORTED, BEGAN_S + 1)


@pytest.mark.parametrize("changed", [{"qdiscs": {"east wan1": "netem delay 10ms"}}, {"sysctls": {}}])
def test_a_network_whose_kernels_report_something_else_is_measured_anew(changed: dict[str, object]) -> None:
    assert not CALIBRATION.holds("wb-1", REPORTED | changed, BEGAN_S + 1)


def test_a_link_outside_tolerance_is_measured_again_at_the_next_sweep_point() -> None:
    assert not replace(CALIBRATION, links=(link(40.0), link(60.0))).holds("wb-1", REPORTED, BEGAN_S + 1)
