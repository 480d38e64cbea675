"""The interface of a compute back end: facts that its callers ask, and the object that computes in a rank."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ground.class_path import load_subclass
from workloads.compute.compute import Compute, MeasuredDevice, TrainingGpu
from workloads.compute.replay import ReplayCosts
from workloads.model.gpt_config import GptConfig
from workloads.schedules.action import ActionKind
from workloads.transport.frames.buffer_pool import BufferPool

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_RENDEZVOUS_TIMEOUT_NS = 8_000_000_000


@dataclass(frozen=True)
class ComputeConfig:
    """What the rank of one stage computes, with nothing left to default: the same for every back end.

    ``backend`` is the path of its class, ``package.module:Class``; ``options`` are its keyword arguments. ``costs`` are
    the stage's times as far as they are known ahead (dilated, where the run is), and the sizes of what it sends.
    An iteration trains on ``microbatches`` sequences in each of ``pipelines`` pipelines. ``model`` is None unless the
    back end trains one, in that ``precision`` of weights, activations and gradients; ``text`` is the file it learns
    from, None for synthetic tokens from ``seed``. ``device``, ``threads`` and ``check_iteration`` are as in the
    experiment file, None where nothing asks for them.
    """

    backend: str
    costs: ReplayCosts
    stages: int
    stage: int
    pipelines: int
    pipeline: int
    microbatches: int
    precision: str
    seed: int
    learning_rate: float
    model: GptConfig | None = None
    text: str | None = None
    device: str | None = None
    threads: int | None = None
    check_iteration: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RankContext:
    """What a rank lends to its computation.

    ``actions`` are the kinds that its schedule asks for at this stage. ``check`` raises what the connections have
    failed with: call it now and then while nothing else would notice. ``pool`` takes back payloads that have arrived.
    ``gpu`` is given where training shares its GPU: claim it for each action.
    """

    actions: tuple[ActionKind, ...]
    check: Callable[[], None]
    pool: BufferPool
    gpu: TrainingGpu | None = None


@dataclass(frozen=True)
class Computation:
    """What computes in one rank.

    ``device`` measures a real device, if there is one. Gradients are summed in elements of ``element_bytes``. Without
    ``reads_payloads`` only the length of a message goes over the network as it is: its bytes are zeros, and nobody
    keeps what arrives. ``save_gradients`` writes the summed gradients to a file, if the back end trains.
    ``device_gradients`` are the gradients where they lie, if it sums on the device.
    """

    compute: Compute
    device: MeasuredDevice | None = None
    element_bytes: int = 1
    reads_payloads: bool = True
    save_gradients: Callable[[Path], None] | None = None
    device_gradients: "Tensor | None" = None


class ComputeBackend(ABC):
    """One kind of compute. A subclass states its facts as class attributes, and makes what computes in a rank.

    It is constructed with its options of the experiment file as keyword arguments, and raises ValueError for a value
    that it does not take. It is imported wherever experiments are read: load heavy packages in ``create``.

    - ``title``: what messages call it.
    - ``real_time``: its work takes the time it takes. It cannot run in virtual time or dilated; a simulation, which
      does not run it, takes the times of the experiment file in its place.
    - ``planning_profile``: the compute profile whose times stand for its own where the file names none. None: the
      times are those written in the file.
    - ``trains``: it trains the model, of which it needs all dimensions. It can learn from a text, sends what the model
      makes, and leaves losses and gradients.
    - ``on_device``: it computes on a device: the file may choose one, and GPUs are given to the hosts.
    - ``sums_on_device``: torch's own collectives can sum its ``device_gradients`` in place of the ring.
    - ``torch_schedules``: torch's own schedules can train in its place.
    - ``computes_prefill``: torch computes prefill too, on the same device. Otherwise prefill is replayed.
    - ``rendezvous_timeout_ns``: how long after their start its ranks may take until all have found each other.
    """

    title: ClassVar[str]
    real_time: ClassVar[bool] = False
    planning_profile: ClassVar[str | None] = None
    trains: ClassVar[bool] = False
    on_device: ClassVar[bool] = False
    sums_on_device: ClassVar[bool] = False
    torch_schedules: ClassVar[bool] = False
    computes_prefill: ClassVar[bool] = False
    rendezvous_timeout_ns: ClassVar[int] = DEFAULT_RENDEZVOUS_TIMEOUT_NS

    def missing(self) -> str | None:
        """Return what this machine lacks to compute so, with the remedy, in one line; None if it lacks nothing."""
        return None

    @abstractmethod
    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Make what computes in a rank, before it has connected to others.

        Raises ValueError and OSError, one line, for what it cannot compute.
        """


def load_backend(class_path: str) -> type[ComputeBackend]:
    """Return the back end's class at ``"package.module:Class"``. Raises ValueError with the path and the fault."""
    return load_subclass(class_path, ComputeBackend)


def create_backend(class_path: str, options: Mapping[str, Any]) -> ComputeBackend:
    """Make a back end. Raises ValueError for a path or options that do not make one."""
    backend_class = load_backend(class_path)
    try:
        return backend_class(**options)
    except TypeError as mismatch:
        raise ValueError(f"{class_path}: {mismatch}") from mismatch
