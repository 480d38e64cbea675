"""Gateways are planned as they were: who changes that on purpose records it anew, see ``tests/support/recorded.py``."""

from pathlib import Path

from tests.support.recorded import check_recorded, digest
from tests.support.runner.drawn_points import drawn_points
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.shared_rate import Timers


def test_drawn_networks_have_the_gateways_that_they_had() -> None:
    found = {}
    for name, point in drawn_points().items():
        for timers in Timers:
            planned = plan_gateways(point.topology, 3, timers).to_json()
            found[f"{name} {timers.name}"] = digest(planned)
    check_recorded(Path(__file__).with_name("recorded_networks.txt"), found)
