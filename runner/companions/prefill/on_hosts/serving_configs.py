"""Make the configurations of the processes that run a variant's prefill service beside the ranks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.workloads.compute.backends.torch_backend import TORCH_RENDEZVOUS_NS
from wanbed.workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.prefill.prefill_profile import UNMEASURED
from wanbed.workloads.prefill.prefill_settings import FillPolicy
from wanbed.workloads.prefill.service_config import DatacenterService, ServiceConfig
from wanbed.workloads.serving.controller_config import ControllerConfig
from wanbed.workloads.serving.serving_configs import (
    RENDEZVOUS_TIMEOUT_NS,
    DecodeConfig,
    Endpoint,
    GpuServingConfig,
    PoolGpuConfig,
)

CONTROLLER_PORT = 10_000
DECODE_PORT = 10_001
FIRST_GPU_PORT = 11_000
"""GPU g receives chunks on FIRST_GPU_PORT + g. These ports are below the kernel's ephemeral ports and the ranks'."""

CONTROLLER, DECODE, POOL = (f"wanbed.workloads.serving.{name}_process" for name in ("controller", "decode", "pool"))


class WritableConfig(Protocol):
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
    config: WritableConfig
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
            listen = self._endpoint(host, DECODE_PORT, host)
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
                    model=service.model,
                    profile=service.profile,
                    settings=service.settings,
                    stages=len(group.gpus),
                    kv_token_bytes=service.kv_token_bytes,
                    activation_token_bytes=service.activation_token_bytes,
                    listen=self._gpu_endpoint(hosts, gpu, host),
                    controller=self._controller(datacenter, host),
                    decodes=tuple(self._endpoint(each, DECODE_PORT, host) for each in datacenter.decode_hosts),
                    following=None if following is None else self._gpu_endpoint(hosts, following, host),
                    datacenters=len(service.datacenters),
                    counts=str(self._counts(gpu)),
                    training=None if group.pooled else self._training.get(gpu),
                    rendezvous_timeout_ns=self._rendezvous_timeout_ns,
                    stage=stage,
                    inference=service.inference,
                    epoch_ns=self._setting.epoch_ns,
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
            setting.epoch_ns,
            str(log),
            setting.parent_pid,
        )
        return ServingProcess(f"the pool's GPU {gpu.index} of {gpu.host}", gpu.host, POOL, pool, gpu.index)

    @property
    def _rendezvous_timeout_ns(self) -> int:
        slow = self._service.inference is not None or self._setting.starts_slowly
        return TORCH_RENDEZVOUS_NS if slow else RENDEZVOUS_TIMEOUT_NS

    def _endpoint(self, host: str, port: int, viewer: str) -> Endpoint:
        """Return where a process on ``host`` listens, for processes on ``viewer``."""
        addresses = self._setting.addresses
        one, other = (addresses.topology.host(each) for each in (host, viewer))
        return Endpoint(host, addresses.address_from(one, other), port)

    def _gpu_endpoint(self, hosts: Mapping[int, str], gpu: int, viewer: str) -> Endpoint:
        return self._endpoint(hosts[gpu], FIRST_GPU_PORT + gpu, viewer)

    def _controller(self, datacenter: DatacenterService, viewer: str) -> Endpoint:
        return self._endpoint(datacenter.controller_host, CONTROLLER_PORT, viewer)

    def _records(self, datacenter: str) -> Path:
        return self._setting.folder / f"prefill-{datacenter}.json"

    def _counts(self, gpu: int) -> Path:
        return self._setting.folder / f"prefill-gpu-{gpu}.json"

    def _decode_counts(self, host: str) -> Path:
        return self._setting.folder / f"decode-{host}.json"
