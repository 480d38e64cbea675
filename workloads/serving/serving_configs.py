"""The configuration files of the processes of a prefill service. Times are those of the testbed's clock.

This module imports only the standard library besides our own modules, because a rank's configuration contains a GPU's.
"""

from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.dataclass_json import write_config
from wanbed.workloads.bubbletea.bubble_forecast import IterationPlan
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig
from wanbed.workloads.inference.inference_model import InferenceModel, InferenceWork

RENDEZVOUS_TIMEOUT_NS = 20_000_000_000
"""Long, because all processes start at once on a machine with few cores. Training does not wait for the rendezvous."""


@dataclass(frozen=True)
class Endpoint:
    """The host, IPv4 address and port where a process of the service listens."""

    host: str
    address: str
    port: int


@dataclass(frozen=True)
class ServedStage:
    """The stage of the model that a GPU prefills. Raises ValueError if ``stage`` is not below ``stages``.

    ``kv_token_bytes`` (all layers of the model together) and ``activation_token_bytes`` are the bytes on the network
    for each token.
    """

    model: InferenceModel
    stages: int
    stage: int
    kv_token_bytes: int
    activation_token_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.stage < self.stages:
            raise ValueError(f"stage: {self.stage} is none of the {self.stages} stages")

    @property
    def layers(self) -> range:
        """The range of the model's layers in this stage."""
        counts = self.model.stage_layers(self.stages)
        first = sum(counts[: self.stage])
        return range(first, first + counts[self.stage])

    def kv_sent_bytes(self, layers: int, tokens: int) -> int:
        """Return the bytes on the network for the KV cache of ``tokens`` tokens in ``layers`` layers, at least 1."""
        return max(1, self.kv_token_bytes * tokens * layers // self.model.layers)


@dataclass(frozen=True)
class ServingPeers:
    """Where a GPU of a service listens, and whom it calls within ``rendezvous_timeout_ns``.

    The previous stage connects to ``listen``; ``following`` is the GPU of the next stage, None at the last one. The KV
    cache of request r goes to decode host ``r // datacenters`` modulo the number of ``decodes``.
    """

    listen: Endpoint
    controller: Endpoint
    decodes: tuple[Endpoint, ...]
    following: Endpoint | None
    datacenters: int
    rendezvous_timeout_ns: int = RENDEZVOUS_TIMEOUT_NS

    def decode(self, request: int) -> int:
        """Return the index in ``decodes`` of a request's decode host."""
        return request // self.datacenters % len(self.decodes)


@dataclass(frozen=True)
class GpuServingConfig:
    """The configuration of one GPU of a service.

    A ``pooled`` GPU does not train. ``counts`` is the path of the file that receives the worker's counts. ``epoch_ns``
    is the trial's start on CLOCK_MONOTONIC. ``training`` is the planned training iteration on this GPU, None if there
    is no plan. With ``inference`` torch computes the layers of ``served``; without it they are replayed.
    """

    gpu: int
    pooled: bool
    served: ServedStage
    peers: ServingPeers
    profile: PrefillProfile
    settings: PrefillSettings
    counts: str
    epoch_ns: int
    training: IterationPlan | None = None
    inference: InferenceWork | None = None


@dataclass(frozen=True)
class PoolGpuConfig:
    """The configuration of the process of a GPU that does not train. Its spans go to the file ``span_log``."""

    serving: GpuServingConfig
    host: str
    datacenter: str
    index: int
    run_token: str
    span_log: str
    parent_pid: int | None = None

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because it contains the token."""
        write_config(self, path)


@dataclass(frozen=True)
class DecodeConfig:
    """The configuration of a decode host, which receives KV caches. Its counts go to the file ``counts``.

    With ``inference`` the caches are real, and torch decodes their sequences.
    """

    listen: Endpoint
    controller: Endpoint
    run_token: str
    counts: str
    parent_pid: int | None = None
    rendezvous_timeout_ns: int = RENDEZVOUS_TIMEOUT_NS
    inference: InferenceWork | None = None

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because it contains the token."""
        write_config(self, path)


@dataclass(frozen=True)
class ControllerConfig:
    """The configuration of the process that controls ``datacenter`` in ``service``.

    Times in ``service`` are those of the testbed's clock (dilated, if the run is). ``records`` is the path of the file
    that receives the outcome of each request; its times count from ``epoch_ns`` on CLOCK_MONOTONIC. Raises ValueError
    if the service does not have this datacenter.
    """

    service: ServiceConfig
    datacenter: str
    listen: Endpoint
    run_token: str
    epoch_ns: int
    records: str
    parent_pid: int | None = None

    def __post_init__(self) -> None:
        if self.datacenter not in [datacenter.name for datacenter in self.service.datacenters]:
            raise ValueError(f"datacenter: the service has none called {self.datacenter!r}")

    @property
    def own(self) -> DatacenterService:
        """The service of the controlled datacenter."""
        return next(datacenter for datacenter in self.service.datacenters if datacenter.name == self.datacenter)

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because it contains the run's token."""
        write_config(self, path)
