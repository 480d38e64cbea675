"""The configuration of a trial's prefill service: the model, the GPUs that serve it, and the source of its requests.

Both engines run a service from this configuration alone. A GPU is identified by its number: that of the training rank
that uses it. GPUs of the dedicated pool are numbered after the ranks.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanbed.workloads.bubbletea.prefill_group import GroupGpus
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_source import RequestSource, striped
from wanbed.workloads.inference.inference_model import InferenceModel, InferenceWork


@dataclass(frozen=True)
class ServingGpu:
    """The host of a GPU; ``index`` is the GPU's index on that host."""

    number: int
    host: str
    index: int


@dataclass(frozen=True)
class DatacenterService:
    """The prefill service of one datacenter.

    Its ``PrefillController(name, groups, ...)`` is a process of its own on ``controller_host``. ``gpus`` lists the GPUs
    of all groups, each once; those of the pool do not train. A request's KV cache goes to one of ``decode_hosts``.
    Requests are distributed over the datacenters in proportion to ``weight``.
    """

    name: str
    groups: tuple[GroupGpus, ...]
    gpus: tuple[ServingGpu, ...]
    controller_host: str
    decode_hosts: tuple[str, ...]
    weight: int


@dataclass(frozen=True)
class ServiceConfig:
    """The prefill service of one trial.

    ``kv_token_bytes`` (all layers together) and ``activation_token_bytes`` are the bytes on the network for each token:
    those of the model, unless transfers are scaled down with the links. Memory is never scaled down.

    With ``inference`` torch computes the prefill and real tensors are sent; without it the prefill is replayed. Replace
    an ``UNMEASURED`` ``profile`` before the service starts.
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
        """Return the configuration in plain types, without ``inference`` if that is None."""
        document = asdict(self)
        if self.inference is None:
            del document["inference"]
        return document

    def arrivals(self) -> Iterator[tuple[DatacenterService, Request]]:
        """Yield every request in order of arrival, with the datacenter that receives it. May never end."""
        weights = [datacenter.weight for datacenter in self.datacenters]
        for position, request in striped(self.source.requests(), weights):
            yield self.datacenters[position], request

    def decode_host(self, datacenter: DatacenterService, request: int) -> str:
        """Return the decode host of a request."""
        hosts = datacenter.decode_hosts
        return hosts[request // len(self.datacenters) % len(hosts)]

    def kv_sent_bytes(self, layers: int, tokens: int) -> int:
        """Return the bytes on the network for the KV cache of ``tokens`` tokens in ``layers`` layers, at least 1."""
        return max(1, self.kv_token_bytes * tokens * layers // self.model.layers)

    def activation_sent_bytes(self, tokens: int) -> int:
        """Return the bytes on the network for the activation of a chunk of ``tokens`` tokens."""
        return self.activation_token_bytes * tokens

    def dilated(self, factor: float) -> "ServiceConfig":
        """Return the service dilated by ``factor``: every time, arrivals included, times it; the rate divided by it."""
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
