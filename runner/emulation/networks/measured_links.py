"""Measure the links of a sweep point, or take over what was measured of them, and write it to the run."""

import time
from collections.abc import Mapping
from typing import Any

from wanbed.results.records.run_store import RunStore
from wanbed.results.records.schema import CalibrationRow
from wanbed.runner.emulation.networks.calibration import Calibration
from wanbed.runner.emulation.networks.network_facts import by_point
from wanbed.runner.emulation.networks.small_transfers import bursts_of, path_text, small_transfers
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.measurement.calibration import DownLinkMeasurement, MeasuredLink, calibrate, sided
from wanbed.testbed.measurement.condition_choice import unmeasured_conditions
from wanbed.testbed.running_testbed import RunningTestbed


def calibrated(
    store: RunStore,
    point: SweepPoint,
    testbed: RunningTestbed,
    reported: Mapping[str, Any],
    earlier: Calibration | None,
    *,
    dilation: float,
    log: Log,
) -> Calibration:
    """Return the calibration of a sweep point's links, which the run then has: the ``earlier`` one where it holds.

    Otherwise the links are measured. ``reported`` is what the kernels report of the testbed. Raise what ``calibrate``
    raises.
    """
    began_s = time.monotonic()
    if earlier is not None and earlier.holds(testbed.identifier, reported, began_s):
        calibration = earlier
        log(
            f"links{_at(point.values)}: measured{_at(earlier.values)}, {began_s - earlier.began_s:.0f} s ago; the same "
            "network has stayed up"
        )
    else:
        log(f"measuring the links{_at(point.values)}")
        dilated = calibrate(testbed, lambda link: log(_link_text(link.undilated(dilation))))
        links = tuple(link.undilated(dilation) for link in dilated)
        calibration = Calibration(point.index, point.values, testbed.identifier, reported, began_s, links)
    store.write_calibration(point.index, [_row(link, calibration.point) for link in calibration.links])
    bursts = bursts_of(testbed.gateway_plan, calibration.links)
    small = [said for variant in point.variants for said in small_transfers(variant, bursts)]
    unmeasured = unmeasured_conditions(testbed.topology, dilation)
    for said in (*small, *unmeasured):
        log(said)
    facts = {
        "burst_bytes": {path_text(ends): size for ends, size in bursts.items()},
        "small_transfers": small,
        **({"unmeasured_conditions": unmeasured} if unmeasured else {}),
    }
    store.update_manifest(by_point(store, point, facts))
    return calibration


def _at(values: Mapping[str, str]) -> str:
    return f" at {', '.join(f'{path}={value}' for path, value in values.items())}" if values else ""


def _link_text(link: MeasuredLink) -> str:
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    path += f" from {link.condition}" if link.condition else ""
    outside = "" if link.within_tolerance else "OUTSIDE TOLERANCE: "
    if isinstance(link, DownLinkMeasurement):
        return f"{outside}{path}: {link.loss.measured:.0%} of echoes lost"
    transfers = [
        f"{what} {compared.measured * scale:.1f} of {compared.configured * scale:.1f} {unit}"
        for column, what, scale, unit in (
            ("short_ms", "short transfers", 1, "ms"),
            ("both_ways_ms", "both ways", 1, "ms"),
            ("share_bps", "shares of the trunk", 1e-6, "Mbit/s"),
            ("together_bps", "together", 1e-6, "Mbit/s"),
        )
        if (compared := link.transfers.get(column)) is not None
    ]
    configured_bps = link.configured_goodput_bps
    configured_goodput = "unlimited" if configured_bps is None else f"{configured_bps / 1e6:.1f}"
    goodput = f"goodput {link.measured_goodput_bps / 1e6:.1f} of {configured_goodput} Mbit/s"
    rtt = f"RTT {link.measured_rtt_ms:.2f} of {link.configured_rtt_ms:.2f} ms"
    return f"{outside}{path}: {', '.join([rtt, goodput, *transfers])}"


def _row(link: MeasuredLink, measured_for: int) -> CalibrationRow:
    return CalibrationRow(**link.in_columns(), impairments=sided(link.impairments), calibrated_at_point=measured_for)
