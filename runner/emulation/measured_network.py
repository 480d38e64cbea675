"""Measure the network of a sweep point, or take over earlier measurements that still hold, and write them to the run.

Trunks and host ports that several senders can fill have a token bucket. After a pause it passes a burst at once. A
transfer smaller than ``TIMES`` the burst finishes more than a tenth of its time too early.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wanbed.results.reading.validity import MODELLED
from wanbed.results.records.run_store import RunStore
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.text import size_text
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.manifest import without_repetition
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.measurement.calibration import DownLinkMeasurement, LinkMeasurement, MeasuredLink, calibrate, sided
from wanbed.testbed.measurement.condition_choice import unmeasured_conditions
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.rights import in_user_namespace
from wanbed.testbed.running_testbed import RunningTestbed

MAX_AGE_S = 600.0
"""Links that were measured longer ago are measured again: what else a machine does changes with time."""


@dataclass(frozen=True)
class Calibration:
    """The measurements of a testbed's links before the trials of sweep point ``point``.

    ``values`` are the swept values of that point. ``testbed`` identifies the testbed; a testbed that was brought up
    anew has another identifier. ``reported`` are the settings that the kernels reported of its network just before.
    ``began_s`` is the start of the measurement, on this process's monotonic clock. ``links`` are undilated.
    """

    point: int
    values: Mapping[str, str]
    testbed: str
    reported: Mapping[str, Any]
    began_s: float
    links: tuple[MeasuredLink, ...]

    def holds(self, testbed: str, reported: Mapping[str, Any], now_s: float) -> bool:
        """Return whether the links of ``testbed``, of which its kernels now report this, need not be measured again.

        They need not if the same testbed is still up, its kernels report the same as then, every link was within
        tolerance, and ``MAX_AGE_S`` has not passed since.
        """
        unchanged = testbed == self.testbed and reported == self.reported
        within = all(link.within_tolerance for link in self.links)
        return unchanged and within and now_s - self.began_s <= MAX_AGE_S


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
        "burst_bytes": {_path_text(ends): size for ends, size in bursts.items()},
        "small_transfers": small,
        **({"unmeasured_conditions": unmeasured} if unmeasured else {}),
    }
    store.update_manifest(_by_point(store, point, facts))
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


def read_network(testbed: RunningTestbed) -> dict[str, Any]:
    """Return what the kernels report of the network while no trial runs. Its hosts then have the default TCP."""
    testbed.use_tcp(TcpSettings())
    return {
        "wan_delay_trim_ns": testbed.facts.trim_ns,
        "qdiscs": testbed.read_qdiscs(),
        "sysctls": without_repetition(testbed.read_sysctls()),
        "offloads": without_repetition(testbed.read_offloads()),
    }


def remember_network(store: RunStore, point: SweepPoint, testbed: RunningTestbed, reported: Mapping[str, Any]) -> None:
    """Write to the manifest what carries the network of a sweep point, and what ``read_network`` returned of it."""
    facts, modelled = testbed.facts, testbed.stacks.modelled
    guest = {} if facts.guest is None else {"guest": asdict(facts.guest)}
    tcp = {"tcp": MODELLED} if modelled else {}
    machine = {"kernel": facts.kernel, "prompt_wakeups": facts.prompt_wakeups}
    substrate = {"name": facts.name, "reason": testbed.reason, **machine, **guest, **tcp}
    rights = {"user_namespace": in_user_namespace()}
    machines = testbed.manifest_facts()
    of_point = _by_point(store, point, {**reported, **machines.of_point})
    store.update_manifest({"substrate": substrate, "rights": rights, **machines.of_run, **of_point})


def _by_point(store: RunStore, point: SweepPoint, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's facts of every sweep point, with those of this one."""
    return {key: {**store.manifest.get(key, {}), str(point.index): fact} for key, fact in facts.items()}


TIMES = 10

_Bursts = Mapping[tuple[str, str], int]
"""Burst in bytes by source and destination datacenter: of their trunk, or of host ports if both are the same."""


def bursts_of(plan: GatewayPlan, links: Iterable[MeasuredLink]) -> dict[tuple[str, str], int]:
    """Return the measured burst of each trunk, and the configured burst of the host ports in each datacenter."""
    trunks = {
        (link.source, link.destination): link.burst_bytes
        for link in links
        # Of a link that changes, in its first conditions.
        if isinstance(link, LinkMeasurement) and link.burst_bytes is not None and link.scope == "wan" and not link.at_ns
    }
    ports = {
        (gateway.datacenter, gateway.datacenter): shared.rate_bytes_per_s * shared.burst_us // 10**6
        for gateway in plan.gateways
        for port in gateway.host_ports
        if (shared := port.shared) is not None
    }
    return {**trunks, **ports}


def _path_text(ends: tuple[str, str]) -> str:
    """Return the name of the trunk between two datacenters, or of the ports in one."""
    return f"ports in {ends[0]}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def small_transfers(variant: ResolvedVariant, bursts: _Bursts) -> list[str]:
    """Return a sentence for each kind of transfer of less than ``TIMES`` the burst of its path; [] if none is."""
    worst: dict[str, tuple[float, str]] = {}
    for transfer in variant.transfers():
        for ends, burst_bytes in _on_the_way(transfer.pair, bursts):
            if transfer.size_bytes >= TIMES * burst_bytes:
                continue
            share = burst_bytes / max(1, transfer.size_bytes)
            sentence = (
                f"{variant.name}: {transfer.what} of {size_text(transfer.size_bytes)} is less than {TIMES} times the "
                f"{size_text(burst_bytes)} that {_path_text(ends)} let go at once after a pause: as much may be "
                "early, of it and what follows without another pause"
            )
            worst[transfer.what] = max(worst.get(transfer.what, (0.0, "")), (share, sentence))
    return [sentence for _, sentence in worst.values()]


def _on_the_way(pair: Pair, bursts: _Bursts) -> Iterator[tuple[tuple[str, str], int]]:
    one, other = pair
    if one.host.name == other.host.name:
        return
    for here, there in ((one.datacenter, other.datacenter), (other.datacenter, one.datacenter)):
        for ends in {(here, there), (there, there)}:
            if ends in bursts:
                yield ends, bursts[ends]
