"""Run a prefill service beside the ranks of a trial: start its processes, end them, and gather their records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.results.records.trial_tables import PREFILL_TABLE
from wanbed.runner.companions.prefill.record import prefill_facts, prefill_rows
from wanbed.runner.companions.prefill.resolution import planned_bubbles
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.emulation.time_line import moved_log
from wanbed.runner.resolve.dilation import dilated_ns, undilated_log, undilated_ns
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.rack.driver.machine_clock import TimeLine
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.bubbletea.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.bubbletea.prefill_profile import UNMEASURED, PrefillProfile, TimedChunk, fit_chunks
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy
from wanbed.workloads.bubbletea.request import Outcome, Reason, RequestRecord
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig
from wanbed.workloads.compute.backends.torch_backend import TORCH_RENDEZVOUS_NS
from wanbed.workloads.inference.inference_model import InferenceWork
from wanbed.workloads.serving.layer_measurement import MeasurementConfig
from wanbed.workloads.serving.serving_configs import (
    RENDEZVOUS_TIMEOUT_NS,
    ControllerConfig,
    DecodeConfig,
    Endpoint,
    GpuServingConfig,
    PoolGpuConfig,
    ServedStage,
    ServingPeers,
)

_CONTROLLER_PORT = 10_000

_DECODE_PORT = 10_001

_FIRST_GPU_PORT = 11_000
"""GPU g receives chunks on this port + g. These ports are below the kernel's ephemeral ports and those of ranks."""

CONTROLLER, DECODE, POOL = (f"wanbed.workloads.serving.{name}_process" for name in ("controller", "decode", "pool"))

_GRACE_S = 15.0
"""Seconds for a process to write its records and to unload torch on few cores. After that it is killed."""


class _WritableConfig(Protocol):
    """The configuration that is handed to a process at launch."""

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""


@dataclass(frozen=True)
class ServingProcess:
    """A process to start: ``python -m program`` on ``host``. ``name`` is used in messages.

    It sees the GPU ``gpu`` of the host, or all GPUs of the host if that is None.
    """

    name: str
    host: str
    program: str
    config: _WritableConfig
    gpu: int | None = None


@dataclass(frozen=True)
class ServingConfigs:
    """The configurations of a service's processes, and the files that they write.

    ``gpus`` has the GPUs that prefill inside ranks, by rank. ``processes`` has all other processes, those of the pool's
    GPUs included. Of the files, ``records`` are by datacenter, ``counts`` and ``pool_span_logs`` by GPU, and
    ``decode_counts`` by host.
    """

    gpus: Mapping[int, GpuServingConfig]
    processes: tuple[ServingProcess, ...]
    records: Mapping[str, Path]
    counts: Mapping[int, Path]
    pool_span_logs: Mapping[int, Path]
    decode_counts: Mapping[str, Path]

    @property
    def written(self) -> tuple[Path, ...]:
        """All files that the processes write."""
        of_gpus = (*self.counts.values(), *self.pool_span_logs.values())
        return (*self.records.values(), *of_gpus, *self.decode_counts.values())


class PrefillService(Companion):
    """The prefill service of a trial. Training does not depend on its processes: one that fails is told of."""

    def __init__(self, trial: RunningTrial, service: ServiceConfig) -> None:
        self._trial = trial
        self._service = service
        # A plan is made with times of a profile, and torch takes its own.
        ahead = planned_bubbles(trial.point.topology, in_pipelines(trial.variant)) if service.inference is None else {}
        self._configs = configure_serving(service, trial.setting, ahead)
        self._faults: list[str] = []

    @classmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the service of a trial, None if it has none. Its profile is measured now if none is named."""
        service, setting = trial.variant.service, trial.setting
        if service is None:
            return None
        if (work := service.inference) is not None:
            if setting.device is not None:
                work = replace(work, device=replace(work.device, name=setting.device))
                service = replace(service, inference=work)
            if service.profile == UNMEASURED:
                profile = _measured_profile(trial.testbed, service, work, setting.folder, setting.parent_pid)
                service = replace(service, profile=profile)
        return cls(trial, service)

    def joined(self, setting: SharedConfig) -> SharedConfig:
        """Return the setting with what ranks prefill."""
        return replace(setting, serving=self._configs.gpus)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Run all processes but the ranks inside the block."""
        testbed, folder, processes = self._trial.testbed, self._trial.setting.folder, self._configs.processes
        with ProcessGroup() as group:
            for number, process in enumerate(processes):
                path = folder / f"serving-{number}.json"
                process.config.write(path)
                start = partial(testbed.start_module, process.host, process.program, [str(path)], gpu=process.gpu)
                group.start(start, folder / f"serving-{number}.words")
            yield
            group.terminate()
            group.wait_for_all(_GRACE_S)
            self._faults += [
                f"{process.name} {_failure(status, group.stderr_tail(number))}"
                for number, (process, status) in enumerate(zip(processes, group.statuses(), strict=True))
                if status != 0
            ]
        testbed.mirror(folder).take([path.name for path in self._configs.written])

    def left(self, trained: Trained) -> TrialPart:
        """Return the requests, figures and faults of the service, and the spans of GPUs that prefill alone."""
        dilation, line = self._trial.setting.dilation, trained.line
        outcome = gather(self._service, self._configs, dilation, self._faults, line)
        logs = [undilated_log(log, dilation) for log in _pool_logs(self._configs, line)]
        return TrialPart({PREFILL_TABLE: outcome.requests}, {"prefill": outcome.facts}, logs)


def _failure(status: int | None, stderr_tail: str) -> str:
    last = f": {stderr_tail}" if stderr_tail else ""
    return f"did not end when terminated{last}" if status is None else f"ended with status {status}{last}"


def configure_serving(
    service: ServiceConfig, setting: SharedConfig, training: Mapping[int, IterationPlan] | None = None
) -> ServingConfigs:
    """Return the configurations of all processes of ``service``.

    ``training`` is the planned iteration of each rank, if known. Times of both arguments are the experiment's; dilation
    is applied here. A training GPU has no configuration under the policy ``none``, because it does not prefill. Raise
    ValueError if the service's profile has not been measured.
    """
    if service.profile == UNMEASURED:
        raise ValueError("profile: it is still to be measured")
    slower = {gpu: _dilated(plan, setting.dilation) for gpu, plan in (training or {}).items()}
    return _ConfigMaker(service.dilated(setting.dilation), setting, slower).configs()


def _dilated(plan: IterationPlan, dilation: float) -> IterationPlan:
    actions = tuple(
        PlannedAction(action.key, dilated_ns(action.start_ns, dilation), dilated_ns(action.end_ns, dilation))
        for action in plan.actions
    )
    return IterationPlan(actions, dilated_ns(plan.period_ns, dilation))


class _ConfigMaker:
    def __init__(self, service: ServiceConfig, setting: SharedConfig, training: Mapping[int, IterationPlan]) -> None:
        self._service = service
        self._training = training
        self._setting = setting

    def configs(self) -> ServingConfigs:
        gpus: dict[int, GpuServingConfig] = {}
        processes: list[ServingProcess] = []
        pool_logs: dict[int, Path] = {}
        for datacenter in self._service.datacenters:
            processes += self._servers(datacenter)
            for config in self._gpus(datacenter):
                if not config.pooled:
                    gpus[config.gpu] = config
                    continue
                pool_logs[config.gpu] = self._setting.span_log(config.gpu)
                processes.append(self._pool_process(datacenter, config, pool_logs[config.gpu]))
        names = [datacenter.name for datacenter in self._service.datacenters]
        hosts = sorted({host for datacenter in self._service.datacenters for host in datacenter.decode_hosts})
        return ServingConfigs(
            gpus,
            tuple(processes),
            records={name: self._records(name) for name in names},
            counts={gpu: self._counts(gpu) for gpu in (*gpus, *pool_logs)},
            pool_span_logs=pool_logs,
            decode_counts={host: self._decode_counts(host) for host in hosts},
        )

    def _servers(self, datacenter: DatacenterService) -> Iterator[ServingProcess]:
        setting = self._setting
        yield ServingProcess(
            f"the prefill controller of {datacenter.name}",
            datacenter.controller_host,
            CONTROLLER,
            ControllerConfig(
                self._service,
                datacenter.name,
                self._controller(datacenter, datacenter.controller_host),
                setting.run_token,
                setting.epoch_ns,
                str(self._records(datacenter.name)),
                setting.parent_pid,
            ),
        )
        for host in datacenter.decode_hosts:
            counts = str(self._decode_counts(host))
            listen = self._endpoint(host, _DECODE_PORT, host)
            config = DecodeConfig(
                listen,
                self._controller(datacenter, host),
                setting.run_token,
                counts,
                setting.parent_pid,
                self._rendezvous_timeout_ns,
                self._service.inference,
            )
            yield ServingProcess(f"the decode host {host}", host, DECODE, config)

    def _gpus(self, datacenter: DatacenterService) -> Iterator[GpuServingConfig]:
        service = self._service
        hosts = {gpu.number: gpu.host for gpu in datacenter.gpus}
        for group in datacenter.groups:
            if not group.pooled and service.settings.policy is FillPolicy.NONE:
                continue
            for stage, gpu in enumerate(group.gpus):
                host = hosts[gpu]
                following = group.gpus[stage + 1] if stage + 1 < len(group.gpus) else None
                yield GpuServingConfig(
                    gpu=gpu,
                    pooled=group.pooled,
                    served=ServedStage(
                        service.model,
                        len(group.gpus),
                        stage,
                        service.kv_token_bytes,
                        service.activation_token_bytes,
                    ),
                    peers=ServingPeers(
                        listen=self._gpu_endpoint(hosts, gpu, host),
                        controller=self._controller(datacenter, host),
                        decodes=tuple(self._endpoint(each, _DECODE_PORT, host) for each in datacenter.decode_hosts),
                        following=None if following is None else self._gpu_endpoint(hosts, following, host),
                        datacenters=len(service.datacenters),
                        rendezvous_timeout_ns=self._rendezvous_timeout_ns,
                    ),
                    profile=service.profile,
                    settings=service.settings,
                    counts=str(self._counts(gpu)),
                    epoch_ns=self._setting.epoch_ns,
                    training=None if group.pooled else self._training.get(gpu),
                    inference=service.inference,
                )

    def _pool_process(self, datacenter: DatacenterService, config: GpuServingConfig, log: Path) -> ServingProcess:
        setting = self._setting
        (gpu,) = [gpu for gpu in datacenter.gpus if gpu.number == config.gpu]
        pool = PoolGpuConfig(
            config,
            gpu.host,
            datacenter.name,
            gpu.index,
            setting.run_token,
            str(log),
            setting.parent_pid,
        )
        return ServingProcess(f"the pool's GPU {gpu.index} of {gpu.host}", gpu.host, POOL, pool, gpu.index)

    @property
    def _rendezvous_timeout_ns(self) -> int:
        slow = self._service.inference is not None or self._setting.patience.starts_slowly
        return TORCH_RENDEZVOUS_NS if slow else RENDEZVOUS_TIMEOUT_NS

    def _endpoint(self, host: str, port: int, viewer: str) -> Endpoint:
        """Return where a process on ``host`` listens, for processes on ``viewer``."""
        addresses = self._setting.addresses
        one, other = (addresses.topology.host(each) for each in (host, viewer))
        return Endpoint(host, addresses.address_from(one, other), port)

    def _gpu_endpoint(self, hosts: Mapping[int, str], gpu: int, viewer: str) -> Endpoint:
        return self._endpoint(hosts[gpu], _FIRST_GPU_PORT + gpu, viewer)

    def _controller(self, datacenter: DatacenterService, viewer: str) -> Endpoint:
        return self._endpoint(datacenter.controller_host, _CONTROLLER_PORT, viewer)

    def _records(self, datacenter: str) -> Path:
        return self._setting.folder / f"prefill-{datacenter}.json"

    def _counts(self, gpu: int) -> Path:
        return self._setting.folder / f"prefill-gpu-{gpu}.json"

    def _decode_counts(self, host: str) -> Path:
        return self._setting.folder / f"decode-{host}.json"


_TIMES = [field.name for field in fields(RequestRecord) if field.name.endswith("_ns")]


@dataclass(frozen=True)
class ServingOutcome:
    """The prefill part of a trial's record, without spans. ``facts["faults"]`` has one line per fault."""

    requests: list[PrefillRequest]
    facts: dict[str, Any]


def gather(
    service: ServiceConfig,
    configs: ServingConfigs,
    dilation: float,
    faults: Sequence[str],
    line: TimeLine | None = None,
) -> ServingOutcome:
    """Read the records and counts of all processes. Files that a failed process did not write are reported as faults.

    Where hosts are on several machines, ``line`` puts the times of each controller on the driver's clock.

    In addition to the facts of both engines there are ``kv_bytes``, the bytes that decode hosts received, and
    ``latest_arrival_ns``, the largest delay with which a request was issued. If torch computes there are also
    ``profile``, the profile used for planning, and ``tokens``, the output tokens of each decoded request.
    """
    found = list(faults)
    records: list[RequestRecord] = []
    output_tokens: dict[int, int] = {}
    latest_ns = 0
    controllers = {each.name: each.controller_host for each in service.datacenters}
    for datacenter, path in configs.records.items():
        left, host = _read(path), controllers[datacenter]
        if left is None:
            found.append(f"the prefill controller of {datacenter} left no records: its requests are not counted")
            continue
        latest_ns = max(latest_ns, left["latest_arrival_ns"])
        for row in left["requests"]:
            output_tokens[row["number"]] = row.pop("output_tokens")
            on_line = row if line is None else {**row, **_moved(row, host, line)}
            records.append(_undilated(on_line, dilation))
    counts = []
    for gpu, path in configs.counts.items():
        left = _read(path)
        if left is None:
            found.append(f"the prefill worker of GPU {gpu} left no counts")
            continue
        counts.append(left)
        if left["fault"]:
            found.append(f"the prefill worker of GPU {gpu} ended early: {left['fault']}")
    margins_ns = [left["margins_ns"][-1] for left in counts if left["margins_ns"] and left["gpu"] in configs.gpus]
    decoded = [left for path in configs.decode_counts.values() if (left := _read(path)) is not None]
    facts = prefill_facts(
        service,
        records,
        deadline_overruns=sum(left["deadline_overruns"] for left in counts),
        overrun_ns=undilated_ns(sum(left["overrun_ns"] for left in counts), dilation),
        margins_ns=[undilated_ns(margin_ns, dilation) for margin_ns in margins_ns],
    )
    measured: dict[str, Any] = {
        "kv_bytes": sum(left["kv_bytes"] for left in decoded),
        "latest_arrival_ns": undilated_ns(latest_ns, dilation),
        "faults": found,
    }
    if service.inference is not None:
        measured["profile"] = asdict(service.profile)
        measured["tokens"] = {request: tokens for left in decoded for request, tokens in left["tokens"].items()}
    return ServingOutcome(prefill_rows(service, records, output_tokens), {**facts, **measured})


def _pool_logs(configs: ServingConfigs, line: TimeLine | None) -> list[SpanLogContents]:
    """Return the logs that the pool's GPUs have left, by the driver's clock."""
    logs = [read_span_log(path) for path in configs.pool_span_logs.values() if path.exists()]
    return logs if line is None else [moved_log(log, line) for log in logs]


def _moved(row: dict[str, Any], host: str, line: TimeLine) -> dict[str, int]:
    return {name: line.trial_ns(host, row[name]) for name in _TIMES if row[name] is not None}


def _undilated(row: dict[str, Any], dilation: float) -> RequestRecord:
    times = {name: undilated_ns(row[name], dilation) for name in _TIMES if row[name] is not None}
    reason = None if row["reason"] is None else Reason(row["reason"])
    return RequestRecord(**{**row, **times, "outcome": Outcome(row["outcome"]), "reason": reason})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


_SOURCE = "measured before the trial, on one of its hosts with nothing beside it"

_PROGRAM = "wanbed.workloads.serving.layer_measurement"

_PATIENCE_S = 300.0
"""Seconds for torch to load, for the weights of some layers to be made, and for prompts of a few chunks."""


def _measured_profile(
    testbed: RunningTestbed, service: ServiceConfig, work: InferenceWork, folder: Path, parent_pid: int
) -> PrefillProfile:
    """Measure the prefill profile of the service's model on the host of its first GPU, which has the most layers.

    Nothing else runs at the same time; beside training and other GPUs of the machine a layer may take longer.
    ``folder`` receives the process's configuration and its result. Raise TrialError, one line, if there is no result,
    or if no profile fits it.
    """
    host = service.datacenters[0].gpus[0].host
    # Named like the configuration: so it comes back from another machine.
    result = folder / "layer-times.measured"
    layers = max(service.model.stage_layers(service.depth))
    config = MeasurementConfig(work, layers, service.settings.chunk_tokens, str(result), parent_pid)
    path = folder / "layer-times.json"
    config.write(path)
    with ProcessGroup() as group:
        group.start(partial(testbed.start_module, host, _PROGRAM, [str(path)]), folder / "layer-times.words")
        if not group.wait_for_all(_PATIENCE_S):
            raise TrialError(
                f"prefill.profile: a layer of {service.model.name} was not measured within {_PATIENCE_S:.0f} s on "
                f"{host}: give a smaller model, or the name of a profile"
            )
        (status,), stderr_tail = group.statuses(), group.stderr_tail(0)
    if status != 0:
        raise TrialError(
            f"prefill.profile: measuring a layer of {service.model.name} on {host} ended with status {status}"
            + (f": {stderr_tail}" if stderr_tail else "")
        )
    chunks = [TimedChunk(*chunk) for chunk in json.loads(result.read_text(encoding="utf-8"))]
    try:
        return fit_chunks(chunks, 1, source=_SOURCE)
    except ValueError as fault:
        raise TrialError(f"prefill.profile: what was measured on {host} makes no profile: {fault}") from None


COMPANION = PrefillService
