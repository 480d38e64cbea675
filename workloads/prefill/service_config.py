"""The plan of a trial's prefill service: the model, which GPUs serve it where, and the requests that come.

Both engines run a service from this and from nothing else. A GPU is identified by its number: that of the training
rank whose GPU it is, or, of the dedicated pool, one from the number of ranks on.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from workloads.inference.inference_model import InferenceModel
from workloads.inference.inference_work import InferenceWork
from workloads.prefill.control.prefill_group import GroupGpus
from workloads.prefill.prefill_profile import PrefillProfile
from workloads.prefill.prefill_settings import PrefillSettings
from workloads.prefill.request import Request
from workloads.prefill.request_source import RequestSource, striped


@dataclass(frozen=True)
class ServingGpu:
    """The place of a GPU; ``index`` counts those of its host."""

    number: int
    host: str
    index: int


@dataclass(frozen=True)
class DatacenterService:
    """Prefill of one datacenter: ``PrefillController(name, groups, ...)``, a process of its own on ``controller_host``.

    ``gpus`` are those of all groups, each once; those of the pool do not train. A request's KV cache goes to one of
    ``decode_hosts``. ``weight`` is this datacenter's part of the requests.
    """

    name: str
    groups: tuple[GroupGpus, ...]
    gpus: tuple[ServingGpu, ...]
    controller_host: str
    decode_hosts: tuple[str, ...]
    weight: int


@dataclass(frozen=True)
class ServiceConfig:
    """The service of one trial. Without a service there is no plan.

    ``kv_token_bytes`` and ``activation_token_bytes`` are what a token's KV cache (of all layers) and its activation
    take on the network: the model's own, unless transfers are scaled down with the links. Memory is always the model's.

    With ``inference`` torch computes the prefill, and real tensors move; else it is replayed. A ``profile`` that
    is ``UNMEASURED`` is to be replaced before the service starts.
    """

    datacenters: tuple[DatacenterService, ...]
    model: InferenceModel
    profile: PrefillProfile
    settings: PrefillSettings
    source: RequestSource
    depth: int
    kv_token_bytes: int
    activation_token_bytes: int
    inference: InferenceWork | None = None

    def document(self) -> dict[str, Any]:
        """Return the plan in plain types, without ``inference`` where there is none."""
        document = asdict(self)
        if self.inference is None:
            del document["inference"]
        return document

    def arrivals(self) -> Iterator[tuple[DatacenterService, Request]]:
        """Yield every request in order of arrival, with the datacenter that receives it; perhaps without an end."""
        weights = [datacenter.weight for datacenter in self.datacenters]
        for position, request in striped(self.source.requests(), weights):
            yield self.datacenters[position], request

    def decode_host(self, datacenter: DatacenterService, request: int) -> str:
        """Return the host that continues a request."""
        hosts = datacenter.decode_hosts
        return hosts[request // len(self.datacenters) % len(hosts)]

    def kv_sent_bytes(self, layers: int, tokens: int) -> int:
        """Return the bytes of the KV cache of so many layers on the network, at least one."""
        return max(1, self.kv_token_bytes * tokens * layers // self.model.layers)

    def activation_sent_bytes(self, tokens: int) -> int:
        """Return the bytes of a chunk's activation on the network."""
        return self.activation_token_bytes * tokens

    def dilated(self, factor: float) -> "ServiceConfig":
        """Return the same service where time goes slower: every time, arrivals too, times ``factor``, rates over it."""
        settings, profile = self.settings, self.profile
        slower = {
            name: round(getattr(settings, name) * factor)
            for name in ("slo_ns", "switch_ns", "guard_ns", "dispatch_ns", "transfer_latency_ns")
        }
        return replace(
            self,
            settings=replace(settings, **slower, transfer_rate_bps=max(1, round(settings.transfer_rate_bps / factor))),
            profile=replace(
                profile,
                fixed_ns=profile.fixed_ns * factor,
                per_token_ns=profile.per_token_ns * factor,
                per_token_pair_ns=profile.per_token_pair_ns * factor,
            ),
            source=replace(self.source, stretch=self.source.stretch * factor),
        )
