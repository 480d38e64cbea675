"""The plans of the processes of a prefill service, as files. Times are those of the testbed's clock.

Reading a GPU's plan takes only the standard library, because the plan is part of a rank's.
"""

from dataclasses import dataclass
from pathlib import Path

from workloads.inference.inference_model import InferenceModel
from workloads.inference.inference_work import InferenceWork
from workloads.plan_file import write_plan
from workloads.prefill.bubbles.bubble_forecast import IterationPlan
from workloads.prefill.prefill_profile import PrefillProfile
from workloads.prefill.prefill_settings import PrefillSettings

RENDEZVOUS_TIMEOUT_NS = 20_000_000_000
"""Everything starts at once, on a machine with few cores. Training waits for none of it."""


@dataclass(frozen=True)
class Endpoint:
    """The address where a process of the service listens."""

    host: str
    address: str
    port: int


@dataclass(frozen=True)
class GpuServingConfig:
    """One GPU's part of a service.

    Chunks from the stage before come in on ``listen``; ``following`` is the GPU of the next stage, None at the last.
    Request r's KV cache goes to number ``r // datacenters`` of ``decodes``, in turns. ``kv_token_bytes``, of all of the
    model's layers, and ``activation_token_bytes`` are what a token takes on the network. ``counts`` is a file that
    receives what the worker counted. A ``pooled`` GPU does not train. ``training`` is what its plan, if there is one,
    says of each iteration. With ``inference`` torch computes the layers of ``stage``; else they are replayed. Raises
    ValueError for a stage that the model does not have.
    """

    gpu: int
    pooled: bool
    model: InferenceModel
    profile: PrefillProfile
    settings: PrefillSettings
    stages: int
    kv_token_bytes: int
    activation_token_bytes: int
    listen: Endpoint
    controller: Endpoint
    decodes: tuple[Endpoint, ...]
    following: Endpoint | None
    datacenters: int
    counts: str
    training: IterationPlan | None = None
    rendezvous_timeout_ns: int = RENDEZVOUS_TIMEOUT_NS
    stage: int = 0
    inference: InferenceWork | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.stage < self.stages:
            raise ValueError(f"stage: {self.stage} is none of the {self.stages} stages")

    @property
    def layers(self) -> range:
        """The model's layers that this GPU has."""
        counts = self.model.stage_layers(self.stages)
        first = sum(counts[: self.stage])
        return range(first, first + counts[self.stage])

    def kv_sent_bytes(self, layers: int, tokens: int) -> int:
        """Return the bytes of the KV cache of so many layers on the network, at least one."""
        return max(1, self.kv_token_bytes * tokens * layers // self.model.layers)

    def decode(self, request: int) -> int:
        """Return the index in ``decodes`` of the host that continues a request."""
        return request // self.datacenters % len(self.decodes)


@dataclass(frozen=True)
class PoolGpuConfig:
    """A process for a GPU that does not train. Its spans go to ``span_log``."""

    serving: GpuServingConfig
    host: str
    datacenter: str
    index: int
    run_token: str
    epoch_ns: int
    span_log: str
    parent_pid: int | None = None

    def write(self, path: Path) -> None:
        """Write the plan as JSON, readable by this user alone because of the token."""
        write_plan(self, path)


@dataclass(frozen=True)
class DecodeConfig:
    """A host that receives KV caches. ``counts`` is a file that receives how much came.

    With ``inference`` the caches are real, and torch continues their sequences.
    """

    listen: Endpoint
    controller: Endpoint
    run_token: str
    counts: str
    parent_pid: int | None = None
    rendezvous_timeout_ns: int = RENDEZVOUS_TIMEOUT_NS
    inference: InferenceWork | None = None

    def write(self, path: Path) -> None:
        """Write the plan as JSON, readable by this user alone because of the token."""
        write_plan(self, path)
