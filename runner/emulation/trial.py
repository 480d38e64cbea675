"""Run one trial: the ranks of one variant on a testbed that is up, from their start to their traces."""

import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from wanbed.results.records.run_store import Rows, TrialRecord
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import (
    BACKGROUND_TABLE,
    CHANGES_TABLE,
    LINK_TABLE,
    LOSSES_TABLE,
    PREFILL_TABLE,
    TrialTable,
)
from wanbed.runner.companions.background.on_hosts import background_traffic
from wanbed.runner.companions.faults.on_hosts.faulted_training import FaultedTraining, train_through_faults
from wanbed.runner.companions.link_changes.on_hosts import link_changes
from wanbed.runner.companions.losses.on_hosts.held_out_evaluation import held_out_losses
from wanbed.runner.companions.losses.on_hosts.losses import learning_facts, loss_rows
from wanbed.runner.companions.prefill.on_hosts.prefill_measurement import measured_profile
from wanbed.runner.companions.prefill.on_hosts.serving_configs import configure_serving
from wanbed.runner.companions.prefill.on_hosts.serving_outcome import gather, pool_logs
from wanbed.runner.companions.prefill.on_hosts.serving_processes import serving
from wanbed.runner.companions.prefill.resolution.prefill_forecast import planned_bubbles
from wanbed.runner.companions.telemetry.on_hosts.carried_bytes import carried_facts
from wanbed.runner.companions.telemetry.on_hosts.samplers import SAMPLERS
from wanbed.runner.companions.telemetry.on_hosts.sampling import Samples, sampling
from wanbed.runner.emulation.gpu_provisioning import resolved_device
from wanbed.runner.emulation.jobs.job_rows import rows_of_job
from wanbed.runner.emulation.jobs.training_at_once import train_at_once, while_all_ran_ns
from wanbed.runner.emulation.programs.program_trial import ProgramOutcome, run_program
from wanbed.runner.emulation.ranks.baseline_configs import configure_baseline
from wanbed.runner.emulation.ranks.peer_timeout import peer_timeout_s
from wanbed.runner.emulation.ranks.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.emulation.ranks.rank_processes import RANK, run_ranks
from wanbed.runner.emulation.ranks.trace_configs import configure_trace
from wanbed.runner.emulation.time_line import on_one_time_line
from wanbed.runner.resolve.dilation import undilated_span
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.recorded.trial_facts import TrialCourse, trial_facts
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.mps import find_mps
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.virtual_time.repeatability import wait_for_whole_second
from wanbed.workloads.prefill.prefill_profile import UNMEASURED
from wanbed.workloads.serving.serving_configs import GpuServingConfig
from wanbed.workloads.start_gate import PIPES

BASELINE_RANK, TRACE_RANK = "wanbed.workloads.baselines.torch_rank", "wanbed.workloads.trace_replay.trace_rank"


@dataclass(frozen=True)
class TrialSpec:
    """All that is needed to run the trial ``id``, which is one of ``point``, on an emulated network.

    ``connections`` is the number of TCP connections by node pair. ``gradients`` is a folder that receives the summed
    gradients of torch's last iteration, one file a rank; None keeps nothing. ``failed`` is a folder that is made of
    what a user's program printed, if it fails; None keeps nothing. With ``keeps_going`` a failure of ranks that nothing
    planned is a result too.
    """

    id: TrialId
    point: SweepPoint
    dilation: float
    connections: Mapping[tuple[str, str], int]
    gradients: Path | None = None
    failed: Path | None = None
    keeps_going: bool = False

    @property
    def variant(self) -> ResolvedVariant:
        """The variant that runs, with the compute times of this repeat."""
        return self.point.variant(self.id.variant).in_repeat(self.id.repeat)

    @property
    def of_ranks(self) -> bool:
        """Whether ranks of ours train, and nothing else runs."""
        variant = self.variant
        own = variant.program is None and not variant.is_baseline and variant.trace is None
        return own and variant.service is None


def run_trial(testbed: RunningTestbed, trial: TrialSpec, meanwhile: Callable[[], None] = lambda: None) -> TrialRecord:
    """Run the ranks and gather what they logged. ``meanwhile`` is called several times a second.

    The hosts' TCP is set as the variant says beforehand: connections are counted under the same settings.

    Raises TrialError, one line with the first rank that failed and its own words, SubstrateError, MachineLostError,
    and MissingError for a kernel that does not report the state of connections.
    """
    point, variant = trial.point, trial.variant
    folder = testbed.folder / "trial"
    folder.mkdir()
    if in_virtual_time():
        wait_for_whole_second()
    try:
        setting = SharedConfig(
            addresses=testbed.addresses,
            connections=trial.connections,
            dilation=trial.dilation,
            run_token=secrets.token_hex(16),
            epoch_ns=time.monotonic_ns(),
            folder=folder,
            parent_pid=testbed.module_parent,
            keep_gradients=trial.gradients is not None,
            device=resolved_device(point, testbed.gpus),
            models_tcp=testbed.stacks.modelled,
            starts_slowly=testbed.starts_slowly,
            peer_timeout_s=peer_timeout_s(testbed.topology),
        )
        testbed.begin_trial(setting.epoch_ns)
        serves, service = None, variant.service
        if service is not None:
            if service.inference is not None and setting.device is not None:
                service = replace(service, inference=replace(service.inference, device=setting.device))
            if service.profile == UNMEASURED:
                service = replace(service, profile=measured_profile(testbed, service, folder, setting.parent_pid))
            # A plan is made with times of a profile, and torch takes its own.
            ahead = planned_bubbles(point.topology, variant) if service.inference is None else {}
            serves = configure_serving(service, setting, ahead)
        outputs: Mapping[str, Path] = {}
        with (
            sampling(SAMPLERS, testbed, setting.epoch_ns, trial.dilation) as samples,
            serving(testbed, serves, folder) as faults,
            link_changes(testbed, point.topology, setting.epoch_ns, trial.dilation) as changes,
            background_traffic(testbed, point.background, setting) as traffic,
        ):

            def begin() -> None:
                changes.begin()
                traffic.begin()

            gpus = None if serves is None else serves.gpus
            look = traffic.looked_at(meanwhile)
            faulted, printed, beside = _trained(testbed, trial, setting, gpus, begin=begin, meanwhile=look)
            if printed is not None:
                samples.measured_ns = printed.measured_ns
        ranks = range(len(variant.placement.places)) if printed is None else ()
        own = faulted.logs if faulted is not None else [read_span_log(setting.span_log(rank)) for rank in ranks]
        own = printed.logs if printed is not None else own
        others = [[read_span_log(path) for path in job] for job in beside]
        line = testbed.end_trial()
        found, clocks = on_one_time_line(line, [*own, *chain(*others)], arrivals=printed is None, whole=faulted is None)
        logs = [_undilated(log, trial.dilation) for log in found[: len(own)]]
        if printed is not None:
            logs = [*found]
            outputs = _set_aside(printed.outputs, testbed.folder / "output")
        prefill = None
        if service is not None and serves is not None:
            prefill = gather(service, serves, trial.dilation, faults, line)
            logs += [_undilated(log, trial.dilation) for log in pool_logs(serves, line)]
        held_out = held_out_losses(testbed, point, variant, setting)
        if trial.gradients is not None:
            _keep_gradients(setting if faulted is None else faulted.setting, ranks, trial.gradients)
    finally:
        shutil.rmtree(folder)
    losses = loss_rows(logs, held_out)
    course = TrialCourse(
        iterations=point.iterations(variant),
        warmup=point.spec.training.warmup,
        tokens_per_iteration=point.tokens_per_iteration,
        dilation=trial.dilation,
        connections=trial.connections,
        sums=[(len(each.ranks), each.late) for log in logs for each in log.sums],
        dropped=sum(log.dropped for log in logs),
        while_all_ran_ns=while_all_ran_ns(found, [len(own), *map(len, others)], trial.dilation),
        varies=variant.varies,
        computes=point.spec.compute.backend.real_time,
    )
    return TrialRecord(
        trial.id,
        logs,
        {
            **_own_rows(samples, point, variant),
            PREFILL_TABLE: () if prefill is None else prefill.requests,
            **({CHANGES_TABLE: changes.rows} if changes.rows else {}),
            LOSSES_TABLE: losses,
            **({BACKGROUND_TABLE: traffic.rows} if traffic.rows else {}),
        },
        {
            **trial_facts(point.topology, variant, course),
            **learning_facts(point, variant, losses),
            **({"devices": devices} if (devices := device_facts(logs)) else {}),
            **({"swapping": swapping} if (swapping := swapping_facts(logs)) else {}),
            # In virtual time nobody samples it.
            "machine_load": None,
            **samples.facts,
            **changes.facts,
            **clocks,
            "sysctls": variant.tcp.sysctls(),
            **_assignment_facts(testbed.gpus),
            **({} if prefill is None else {"prefill": prefill.facts}),
            **({} if printed is None else printed.facts),
            # What was on its way to a rank that failed need not have crossed a link.
            **(_carried_facts(point, logs, samples) if faulted is None else {}),
            **({} if faulted is None or faulted.history is None else {"faults": faulted.history.facts(line)}),
        },
        outputs,
    )


class _Trained(NamedTuple):
    """What training has left beside the ranks' logs, each None where there is no such thing.

    ``beside`` are the span logs of each job that trained at the same time.
    """

    faulted: FaultedTraining | None = None
    printed: ProgramOutcome | None = None
    beside: Sequence[Sequence[Path]] = ()


def _trained(
    testbed: RunningTestbed,
    trial: TrialSpec,
    setting: SharedConfig,
    serving_gpus: Mapping[int, GpuServingConfig] | None,
    *,
    begin: Callable[[], None],
    meanwhile: Callable[[], None],
) -> _Trained:
    """Train: beside other jobs, through faults, or undisturbed. ``begin`` is called when training begins."""
    point, variant = trial.point, trial.variant
    if variant.beside:
        beside = train_at_once(testbed, point, variant, setting, begin=begin, meanwhile=meanwhile)
        return _Trained(beside=beside)
    if point.faults or (trial.keeps_going and trial.of_ranks):
        return _Trained(
            train_through_faults(testbed, point, trial.id, setting, meanwhile, begin=begin, unplanned=trial.keeps_going)
        )
    return _Trained(printed=_train(testbed, trial, setting, serving_gpus, begin=begin, meanwhile=meanwhile))


def _train(
    testbed: RunningTestbed,
    trial: TrialSpec,
    setting: SharedConfig,
    serving_gpus: Mapping[int, GpuServingConfig] | None,
    *,
    begin: Callable[[], None],
    meanwhile: Callable[[], None],
) -> ProgramOutcome | None:
    """Run what trains until all of it has ended well. Return what a user's program left, None for ranks of ours.

    ``begin`` is called at the moment when ranks of ours begin together, or when other processes are started.
    """
    point, variant, folder = trial.point, trial.variant, setting.folder
    if variant.program is not None:
        return run_program(
            testbed, variant, variant.program, setting, failed=trial.failed, begin=begin, meanwhile=meanwhile
        )
    if variant.is_baseline:
        begin()
        run_ranks(testbed, BASELINE_RANK, configure_baseline(point, variant, setting), folder, meanwhile)
        return None
    program, plans = (
        (RANK, configure_ranks(point, variant, setting, serving_gpus))
        if variant.trace is None
        else (TRACE_RANK, configure_trace(point, variant, variant.trace, setting))
    )
    with testbed.gate(setting.start_gate, [plan.host for plan in plans], PIPES, begin=begin) as gate:
        run_ranks(testbed, program, plans, folder, meanwhile, gate=gate)
    return None


def _own_rows(samples: Samples, point: SweepPoint, variant: ResolvedVariant) -> Mapping[TrialTable, Rows]:
    """Return the samples of the variant's own connections and node pairs, and of what ran in the background."""
    if not (variant.beside or point.background):
        return samples.tables
    hosts = {place.host.name for place in variant.placement.places}
    return rows_of_job(samples.tables, hosts, point.topology, [flow.hosts for flow in point.background])


def _carried_facts(point: SweepPoint, logs: Sequence[SpanLogContents], samples: Samples) -> Mapping[str, Any]:
    """Return what was sent between datacenters, and what the links carried of it."""
    homes = {host.name: host.datacenter for host in point.topology.hosts}
    rows = samples.tables.get(LINK_TABLE, ())
    assert not isinstance(rows, TrialCounters)
    return carried_facts(logs, homes, (LinkSample(*row) for row in rows))


def _keep_gradients(setting: SharedConfig, ranks: Iterable[int], folder: Path) -> None:
    """Copy the gradients of the last iteration, of those ranks that came to it."""
    for rank in ranks:
        if (path := setting.gradients(rank)) is not None and path.exists():
            shutil.copy(path, folder / f"rank-{rank}.npz")


def device_facts(logs: Iterable[SpanLogContents]) -> list[dict[str, Any]]:
    """Return the device facts of each rank that computed for real, and its place in the emulated network."""
    return [
        {"rank": log.header.rank, "host": log.header.host, "gpu": log.header.gpu, **asdict(log.device)}
        for log in logs
        if log.device is not None
    ]


def swapping_facts(logs: Iterable[SpanLogContents]) -> list[dict[str, Any]]:
    """Return what swapping took each rank that really swapped, and its place in the emulated network."""
    return [
        {"rank": log.header.rank, "host": log.header.host, "gpu": log.header.gpu, **asdict(log.swapping)}
        for log in logs
        if log.swapping is not None
    ]


def _set_aside(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Move files to ``folder``, which then has nothing else, and return their paths there by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return {name: path.rename(folder / name) for name, path in files.items()}


def _assignment_facts(gpus: GpuAssignment | None) -> dict[str, Any]:
    """Return which real GPU each host's GPU is, and MPS if it runs: with it those that share one run side by side."""
    if gpus is None:
        return {}
    mps = find_mps()
    return {"gpu_assignment": gpus.document(), **({} if mps is None else {"mps": asdict(mps)})}


def _undilated(log: SpanLogContents, dilation: float) -> SpanLogContents:
    return replace(log, spans=tuple(undilated_span(span, dilation) for span in log.spans))
