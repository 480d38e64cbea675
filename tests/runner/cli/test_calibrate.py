"""The table of a calibration shows every figure in a terminal of 80 columns."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.runner.cli.calibrate import print_calibration
from wanbed.testbed.measurement.calibration import DownLinkMeasurement, LinkMeasurement, MeasuredLink
from wanbed.testbed.measurement.transfer_calibration import ComparedFigure

LINK = LinkMeasurement(
    source="central",
    destination="west",
    scope="wan",
    configured_rtt_ms=200.0,
    measured_rtt_ms=200.35,
    configured_goodput_bps=956.3e6,
    measured_goodput_bps=951.1e6,
    impairments={each.column: ComparedFigure(0.0, 0.0) for each in IMPAIRMENTS},
    echo_requests=100,
    transfers={"short_ms": ComparedFigure(121.7, 125.6), "both_ways_ms": ComparedFigure(121.8, 131.8)},
)


def printed(*links: MeasuredLink) -> list[str]:
    text = StringIO()
    print_calibration(links, "experiment.yaml", 3.0, Console(file=text, width=80))
    return text.getvalue().splitlines()


def test_every_figure_is_shown_in_eighty_columns() -> None:
    lines = printed(LINK)
    assert not [line for line in lines if "…" in line]
    (asked,) = (line.split() for line in lines if "asked" in line)
    (measured,) = (line.split() for line in lines if "measured" in line)
    assert asked == ["central", "to", "west", "asked", "200.00", "956.3", "121.7", "121.8"]
    assert measured == ["measured", "200.35", "951.1", "125.6", "131.8", "NO"]
    assert lines[0].strip() == "experiment.yaml (dilation 3)"


def test_slow_rates_are_told_apart() -> None:
    lines = printed(replace(LINK, configured_goodput_bps=9_182.0, measured_goodput_bps=53_560.0))
    assert any("0.00918" in line for line in lines if "asked" in line)
    assert any("0.0536" in line for line in lines if "measured" in line)


def test_a_link_without_a_rate_is_unlimited_and_one_that_is_down_has_none() -> None:
    unlimited = replace(LINK, configured_goodput_bps=None, transfers={})
    down = DownLinkMeasurement("east", "west", "wan", ComparedFigure(1.0, 1.0), None, at_ns=3 * 10**9)
    lines = printed(unlimited, down)
    assert sum("unlimited" in line for line in lines) == 1
    assert any("3s, down" in line for line in lines)


def test_impairments_are_shown_where_a_link_has_one() -> None:
    lossy = replace(LINK, impairments={**LINK.impairments, "loss": ComparedFigure(0.01, 0.0123)})
    assert not any("loss" in line for line in printed(LINK))
    lines = printed(lossy)
    assert any("1.00%" in line for line in lines if "asked" in line)
    assert any("1.23%" in line for line in lines if "measured" in line)
