"""Refuse, before anything is started, links that are too slow to be measured on the real clock."""

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_rate
from wanbed.testbed.measurement.condition_choice import choose_conditions
from wanbed.testbed.network.topology import Topology

LEAST_RATE_BPS = 10**6
"""Below it echoes wait for each other, and what fills the link outlasts the seconds for which goodput is measured."""


def check_measurable(topology: Topology, dilation: float = 1.0) -> None:
    """Raise InputError if calibration would measure a WAN link that is slower than that once dilated."""
    for link in topology.wan:
        for at_ns in choose_conditions(link).measured_ns:
            for (source, destination), conditions in link.at(at_ns).directions:
                rate_bps = conditions.pair_rate_bps
                if conditions.up and rate_bps is not None and rate_bps < LEAST_RATE_BPS * dilation:
                    divided = "" if dilation == 1 else f", which dilation divides by {dilation:g}"
                    raise InputError(
                        f"topology: the link from {source} to {destination} has {format_rate(rate_bps)}{divided}: "
                        f"on the real clock links are measured from {format_rate(LEAST_RATE_BPS)} on: give more, or "
                        "clock: virtual"
                    )
