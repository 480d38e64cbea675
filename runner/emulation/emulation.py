"""The engine ``emulate``: run each sweep point of an experiment on its own testbed, trial by trial."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results.reading.modelled_tcp import MODELLED
from results.reading.summaries.saturation import MachineLoad
from results.reading.summaries.ways_around import WaysAround
from results.records.run_store import RunStore, TrialRecord
from results.records.schema import CalibrationRow
from results.records.trial_id import TrialId
from runner.emulation.faults.fault_lines import fault_lines
from runner.emulation.faults.unplanned import ended_unplanned, failed_record
from runner.emulation.jobs.background_traffic import use_tcp_of_flows
from runner.emulation.jobs.training_at_once import use_tcp_of_jobs
from runner.emulation.small_transfers import bursts_of, path_text, small_transfers
from runner.emulation.trial import TrialSpec, run_trial
from runner.resolve.connection_count import count_connections
from runner.resolve.experiment import Experiment, SweepPoint
from runner.runs.faults import TrialError
from runner.runs.progress import Progress
from runner.runs.recorded.manifest import without_repetition
from runner.runs.run_folder import Log
from testbed.hosts.ping import MeasurementError
from testbed.measurement.calibration import LinkMeasurement, calibrate
from testbed.measurement.condition_choice import unmeasured_conditions
from testbed.rights.hosts_allowed import in_user_namespace
from testbed.running_testbed import RunningTestbed
from testbed.substrate.substrate import SubstrateError

BringUp = Callable[[SweepPoint, float], AbstractContextManager[RunningTestbed]]
"""Brings up the network of a sweep point, dilated by a factor, for the duration of a ``with`` block."""


def emulate(
    experiment: Experiment,
    store: RunStore,
    *,
    dilation: float,
    bring_up: BringUp,
    progress: Progress,
    log: Log,
    keep_gradients: bool = False,
    keep_going: bool = False,
) -> None:
    """Run every trial that the store lacks.

    With ``keep_gradients`` the run's folder ``gradients`` receives those of each trial's last iteration. With
    ``keep_going`` a trial that fails is kept, marked, and the next one runs on a network that is brought up anew. What
    the experiment lets fail ends no run in any case.

    The links of each sweep point are measured before its first trial. Raises TrialError, and what bringing up a testbed
    and measuring it raise; trials that had finished by then are in the store.
    """
    for point in experiment.points():
        pending = [trial for trial in point.trials() if not store.has_trial(*trial)]
        while pending:
            with bring_up(point, dilation) as testbed:
                _remember(store, point, testbed)
                _calibrate(store, point, testbed, dilation, log)
                whole = True
                while pending and whole:
                    trial = pending.pop(0)
                    progress.trial_started(point.values, trial.variant, trial.repeat)
                    gradients = _gradients_folder(store, trial) if keep_gradients else None
                    failed = _folder_of(store, trial, "failed")
                    spec = TrialSpec(
                        trial, point, dilation, _connections(point, trial), gradients, failed, keeps_going=keep_going
                    )
                    record = _record(testbed, spec, progress.refresh)
                    store.write_trial(record)
                    whole = not ended_unplanned(record.facts)
                    if whole:
                        _forget(store, failed)
                    progress.trial_finished()
                    for line in _remarks(spec, record):
                        log(f"{trial.variant}, repeat {trial.repeat}: {line}")


def _connections(point: SweepPoint, trial: TrialId) -> dict[tuple[str, str], int]:
    variant = point.variant(trial.variant)
    # A program makes its own connections.
    pairs = variant.pairs if variant.program is None else ()
    return count_connections(point.topology, pairs, variant.transport, variant.clock)


def _record(testbed: RunningTestbed, trial: TrialSpec, meanwhile: Callable[[], None]) -> TrialRecord:
    """Run a trial. If it fails and others are to run, return a record that says so, in place of the error."""
    try:
        use_tcp_of_jobs(testbed, trial.variant)
        use_tcp_of_flows(testbed, trial.point.background)
        return run_trial(testbed, trial, meanwhile)
    except (TrialError, SubstrateError, MeasurementError, OSError) as failure:
        if not trial.keeps_going:
            raise
        return failed_record(trial, str(failure))


def _remarks(trial: TrialSpec, record: TrialRecord) -> Iterator[str]:
    """Yield what the user should know of a trial: what ended or delayed it, and whether the machine kept up."""
    yield from record.facts.get("prefill", {}).get("faults", ())
    yield from fault_lines(record.facts.get("faults"))
    if around := WaysAround.of(record.facts).sentence:
        yield f"{around}: do not compare its figures; see docs/rack.md for the ways, and shut them"
    if saturated := MachineLoad.of(record.facts).sentence:
        backend = trial.point.spec.compute.backend
        remedy = f"{backend.title} wants more cores" if backend.real_time else "give a larger dilation"
        if trial.variant.program is not None:
            remedy = "run it where nothing else runs, or where there are more cores"
        yield f"{saturated}: {remedy}"


def _folder_of(store: RunStore, trial: TrialId, what: str) -> Path:
    """Return where the run keeps ``what`` of a trial, apart from finished trials."""
    return store.path / what / store.trial_path(*trial).relative_to(store.path / "trials")


def _forget(store: RunStore, folder: Path) -> None:
    """Remove what an earlier try of a trial has left, and the folders above it that nothing else is in."""
    shutil.rmtree(folder, ignore_errors=True)
    for above in folder.parents:
        if above == store.path or not above.is_dir() or any(above.iterdir()):
            return
        above.rmdir()


def _gradients_folder(store: RunStore, trial: TrialId) -> Path:
    folder = _folder_of(store, trial, "gradients")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _calibrate(store: RunStore, point: SweepPoint, testbed: RunningTestbed, dilation: float, log: Log) -> None:
    values = ", ".join(f"{path}={value}" for path, value in point.values.items())
    log(f"measuring the links{f' at {values}' if values else ''}")
    links = [
        link.undilated(dilation) for link in calibrate(testbed, lambda link: log(_link_text(link.undilated(dilation))))
    ]
    store.write_calibration(point.index, [_row(link) for link in links])
    bursts = bursts_of(testbed.gateway_plan, links)
    small = [said for variant in point.variants for said in small_transfers(variant, bursts)]
    for said in small:
        log(said)
    unmeasured = unmeasured_conditions(testbed.topology, dilation)
    for said in unmeasured:
        log(said)
    read_back = {
        "burst_bytes": {path_text(ends): size for ends, size in bursts.items()},
        "small_transfers": small,
        **({"unmeasured_conditions": unmeasured} if unmeasured else {}),
    }
    store.update_manifest(_by_point(store, point, read_back))


def _link_text(link: LinkMeasurement) -> str:
    configured_goodput = (
        "unlimited" if link.configured_goodput_bps is None else f"{link.configured_goodput_bps / 1e6:.1f}"
    )
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    path += f" from {link.condition}" if link.condition else ""
    outside = "" if link.within_tolerance else "OUTSIDE TOLERANCE: "
    if link.measured_rtt_ms is None or link.configured_rtt_ms is None or link.measured_goodput_bps is None:
        return f"{outside}{path}: {link.impairments['loss'].measured:.0%} of echoes lost"
    transfers = [
        f"{what} {measured * scale:.1f} of {asked * scale:.1f} {unit}"
        for what, asked, measured, scale, unit in (
            ("short transfers", link.configured_short_ms, link.measured_short_ms, 1, "ms"),
            ("both ways", link.configured_both_ways_ms, link.measured_both_ways_ms, 1, "ms"),
            ("shares of the trunk", link.configured_share_bps, link.measured_share_bps, 1e-6, "Mbit/s"),
            ("together", link.configured_together_bps, link.measured_together_bps, 1e-6, "Mbit/s"),
        )
        if asked is not None and measured is not None
    ]
    goodput = f"goodput {link.measured_goodput_bps / 1e6:.1f} of {configured_goodput} Mbit/s"
    rtt = f"RTT {link.measured_rtt_ms:.2f} of {link.configured_rtt_ms:.2f} ms"
    return f"{outside}{path}: {', '.join([rtt, goodput, *transfers])}"


def _row(link: LinkMeasurement) -> CalibrationRow:
    impairments = {
        f"{side}_{column}": figure
        for column, compared in link.impairments.items()
        for side, figure in asdict(compared).items()
    }
    figures = {name: getattr(link, name) for name in CalibrationRow._fields}
    return CalibrationRow(**{**figures, "impairments": impairments})


def _remember(store: RunStore, point: SweepPoint, testbed: RunningTestbed) -> None:
    """Write to the manifest what carries the network here, as the kernels report it before the first trial."""
    read_back = {
        "wan_delay_trim_ns": testbed.facts.trim_ns,
        "qdiscs": testbed.read_qdiscs(),
        "sysctls": without_repetition(testbed.read_sysctls()),
        "offloads": without_repetition(testbed.read_offloads()),
    }
    facts, modelled = testbed.facts, testbed.stacks.modelled
    guest = {} if facts.guest is None else {"guest": asdict(facts.guest)}
    tcp = {"tcp": MODELLED} if modelled else {}
    substrate = {"name": facts.name, "reason": testbed.reason, "kernel": facts.kernel, **guest, **tcp}
    rights = {"user_namespace": in_user_namespace()}
    rack: dict[str, Any] = {}
    if testbed.rack is not None:
        rack = {"rack": testbed.rack.document()}
        split = {f"{each.source} to {each.destination}": each.machines for each in testbed.rack.trunk_splits()}
        read_back |= {"rack_hosts": testbed.rack.hosts_by_machine(), "trunk_split": split}
    store.update_manifest({"substrate": substrate, "rights": rights, **rack, **_by_point(store, point, read_back)})


def _by_point(store: RunStore, point: SweepPoint, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's facts of every sweep point, with those of this one."""
    return {key: {**store.manifest.get(key, {}), str(point.index): fact} for key, fact in facts.items()}
