"""The engine ``emulate``: run every cell of an experiment on its own testbed, trial by trial, into a run's store."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results.reading.saturation import MachineLoad
from results.records.run_store import RunStore
from results.records.schema import CalibrationRow
from runner.emulation.gpu_provisioning import provision_gpus
from runner.emulation.small_transfers import bursts_of, path_text, small_transfers
from runner.emulation.trial import Trial, run_trial
from runner.resolve.connection_count import count_connections
from runner.resolve.experiment import Cell, Experiment
from runner.runs.manifest import told_once
from runner.runs.progress import Progress
from testbed.measurement.calibration import LinkMeasurement, calibrate
from testbed.testbed import Testbed, bring_up

Tell = Callable[[str], None]


def emulate(
    experiment: Experiment,
    store: RunStore,
    *,
    dilation: float,
    substrate: str,
    source: str,
    progress: Progress,
    tell: Tell,
    keep_gradients: bool = False,
) -> None:
    """Run every trial that the store lacks.

    With ``keep_gradients`` the run's folder ``gradients`` receives those of each trial's last iteration.

    The links of each cell are measured before its first trial. Raises TrialError, and what bringing up a testbed and
    measuring it raise; trials that had finished by then are in the store.
    """
    for cell in experiment.cells():
        pending = [
            (repeat, position)
            for repeat in range(cell.spec.repeats)
            for position, variant in enumerate(cell.variants)
            if not store.has_trial(cell.index, variant.name, repeat)
        ]
        if not pending:
            continue
        gpus = provision_gpus(cell, source)
        with bring_up(cell.topology.dilated(dilation), substrate=substrate, source=source, gpus=gpus) as testbed:
            _remember(store, cell, testbed)
            _calibrate(store, cell, testbed, dilation, tell)
            for repeat, position in pending:
                variant = cell.variants[position]
                progress.trial_started(cell.values, variant.name, repeat)
                testbed.use_tcp(variant.tcp)
                connections = count_connections(cell.topology, variant.pairs, variant.transport, variant.clock)
                gradients = _gradients_folder(store, cell, variant.name, repeat) if keep_gradients else None
                trial = Trial(cell, position, repeat, dilation, connections, gradients)
                record = run_trial(testbed, trial, progress.refresh)
                store.write_trial(record)
                progress.trial_finished()
                for fault in record.facts.get("prefill", {}).get("faults", ()):
                    tell(f"{variant.name}, repeat {repeat}: {fault}")
                if saturated := MachineLoad.of(record.facts).sentence:
                    backend = cell.spec.compute.backend
                    remedy = f"{backend.title} wants more cores" if backend.real_time else "give a larger dilation"
                    tell(f"{variant.name}, repeat {repeat}: {saturated}: {remedy}")


def _gradients_folder(store: RunStore, cell: Cell, variant: str, repeat: int) -> Path:
    folder = store.path / "gradients" / store.trial_path(cell.index, variant, repeat).relative_to(store.path / "trials")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _calibrate(store: RunStore, cell: Cell, testbed: Testbed, dilation: float, tell: Tell) -> None:
    values = ", ".join(f"{path}={value}" for path, value in cell.values.items())
    tell(f"measuring the links{f' at {values}' if values else ''}")
    links = [
        link.undilated(dilation) for link in calibrate(testbed, lambda link: tell(_told(link.undilated(dilation))))
    ]
    store.write_calibration(cell.index, [_row(link) for link in links])
    bursts = bursts_of(testbed.gateway_plan, links)
    small = [said for variant in cell.variants for said in small_transfers(variant, bursts)]
    for said in small:
        tell(said)
    read_back = {"burst_bytes": {path_text(ends): size for ends, size in bursts.items()}, "small_transfers": small}
    store.update_manifest(_by_cell(store, cell, read_back))


def _told(link: LinkMeasurement) -> str:
    asked_goodput = "unlimited" if link.asked_goodput_bps is None else f"{link.asked_goodput_bps / 1e6:.1f}"
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    transfers = [
        f"{what} {measured * scale:.1f} of {asked * scale:.1f} {unit}"
        for what, asked, measured, scale, unit in (
            ("short transfers", link.asked_short_ms, link.measured_short_ms, 1, "ms"),
            ("both ways", link.asked_both_ways_ms, link.measured_both_ways_ms, 1, "ms"),
            ("shares of the trunk", link.asked_share_bps, link.measured_share_bps, 1e-6, "Mbit/s"),
            ("together", link.asked_together_bps, link.measured_together_bps, 1e-6, "Mbit/s"),
        )
        if asked is not None and measured is not None
    ]
    goodput = f"goodput {link.measured_goodput_bps / 1e6:.1f} of {asked_goodput} Mbit/s"
    rtt = f"RTT {link.measured_rtt_ms:.2f} of {link.asked_rtt_ms:.2f} ms"
    return f"{'' if link.within_tolerance else 'OUTSIDE TOLERANCE: '}{path}: {', '.join([rtt, goodput, *transfers])}"


def _row(link: LinkMeasurement) -> CalibrationRow:
    impairments = {
        f"{side}_{column}": figure
        for column, compared in link.impairments.items()
        for side, figure in asdict(compared).items()
    }
    figures = {name: getattr(link, name) for name in CalibrationRow._fields}
    return CalibrationRow(**{**figures, "impairments": impairments})


def _remember(store: RunStore, cell: Cell, testbed: Testbed) -> None:
    """Write to the manifest what carries this cell's network, as the kernels report it before the first trial."""
    read_back = {
        "wan_delay_trim_ns": testbed.facts.trim_ns,
        "qdiscs": testbed.read_qdiscs(),
        "sysctls": told_once(testbed.read_sysctls()),
        "offloads": told_once(testbed.read_offloads()),
    }
    substrate = {"name": testbed.facts.name, "reason": testbed.reason, "kernel": testbed.facts.kernel}
    store.update_manifest({"substrate": substrate, **_by_cell(store, cell, read_back)})


def _by_cell(store: RunStore, cell: Cell, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's facts of every cell, with those of this one."""
    return {key: {**store.manifest.get(key, {}), str(cell.index): fact} for key, fact in facts.items()}
