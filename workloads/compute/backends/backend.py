"""The interface of a compute back end: its properties, and the creation of a rank's computation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from wanbed.ground.class_path import create, load_subclass
from wanbed.results.records.span_log import SwappingRecord
from wanbed.workloads.collective.collective_config import CollectiveConfig
from wanbed.workloads.compute.activation_wire import EncodedBoundaries
from wanbed.workloads.compute.compute import Compute, MeasuredDevice, SynchronizedCompute, TrainingGpu
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.replay import ReplayCosts
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.synchronization.synchronization import Synchronization
from wanbed.workloads.transport.links_config import DEFAULT_RENDEZVOUS_TIMEOUT_NS
from wanbed.workloads.transport.receive_buffers import BufferPool

if TYPE_CHECKING:
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce, Report


@dataclass(frozen=True)
class ComputeConfig:
    """The configuration of one stage's computation in a rank, the same for every back end.

    - ``backend``: the path of its class, ``package.module:Class``; ``options`` are its keyword arguments.
    - ``costs``: the stage's times as far as they are known ahead (dilated if the run is), and the sizes of what it
      sends. Where the stage is divided, they are those of all its virtual stages together, and have no sizes but that
      of the gradients; ``chunks`` are then the times and sizes of each one.
    - ``learning``: what the back end trains, None where it trains nothing.
    - ``synchronization``: how replicas that train alone are kept together, None where they sum gradients in every
      iteration. ``fragments_bytes`` are then the encoded sizes of the stage's fragments.
    - ``encoded``: the boundaries whose messages are encoded, None without any. ``costs`` and ``chunks`` have their
      sizes, and the times with encoding and decoding.
    - ``collective``: torch's all-reduce of the gradients over the replicas, None where a ring sums them.
    """

    backend: str
    costs: ReplayCosts
    computed: ComputedStage
    learning: LearningConfig | None = None
    device: TrainingDevice = field(default_factory=TrainingDevice)
    options: dict[str, Any] = field(default_factory=dict)
    chunks: tuple[ReplayCosts, ...] = ()
    synchronization: Synchronization | None = None
    fragments_bytes: tuple[int, ...] = ()
    encoded: EncodedBoundaries | None = None
    collective: CollectiveConfig | None = None


@dataclass(frozen=True)
class RankContext:
    """The parts of a rank that its computation uses.

    - ``actions``: the kinds of action that the schedule has at this stage.
    - ``check``: raises the error of the connections if they have failed. Call it regularly during long waits.
    - ``pool``: received payloads are given back to it.
    - ``gpu``: None unless training shares its GPU. Claim it for each action.
    """

    actions: tuple[ActionKind, ...]
    check: Callable[[], None]
    pool: BufferPool
    gpu: TrainingGpu | None = None


@dataclass(frozen=True)
class ModelFiles:
    """Writes what a back end trains to files, and begins with it.

    - ``save_gradients``: writes the summed gradients.
    - ``save_state``: writes weights and optimizer state, by names in the whole model; ``load_state`` takes those of
      this stage from the files of all stages.
    - ``save_weights``: writes the weights alone, by names in the whole model, for an evaluation.
    """

    save_gradients: Callable[[Path], None]
    save_state: Callable[[Path], None]
    load_state: Callable[[Sequence[Path]], None]
    save_weights: Callable[[Path], None]


@dataclass(frozen=True)
class SwappedGroups:
    """The ``count`` groups of layers that a model is cut into that swaps them.

    Each action computes one of them as its chunk, in the order of ``GroupByGroup``. ``record`` returns what swapping
    has taken so far, None before the first iteration.
    """

    count: int
    record: Callable[[], SwappingRecord | None]


@dataclass(frozen=True)
class TrainedModel:
    """The model that a back end trains, on a device.

    - ``device``: measures the device.
    - ``files``: writes the model, and begins with it.
    - ``squares``: returns the sum of the squares of this stage's gradients, once they are complete on the device.
    - ``swapped``: None if the back end swaps no layers.
    """

    device: MeasuredDevice
    files: ModelFiles
    squares: Callable[[], float]
    swapped: SwappedGroups | None = None


@dataclass(frozen=True)
class Computation:
    """The computation of one rank.

    - ``compute``: a ``BucketCompute`` if it can hand gradients over while it computes.
    - ``element_bytes``: the size of a gradient's element; the all-reduce does not split elements.
    - ``reads_payloads``: False if messages have a length but no contents: zeros are sent, and received bytes discarded.
    - ``model``: None if the back end does not train.
    - ``all_reduce``: joins the collective of ``ComputeConfig.collective``, given the function that it reports to. None
      without one.
    - ``synchronized``: exchanges pseudo-gradients. None without ``ComputeConfig.synchronization``.
    """

    compute: Compute
    element_bytes: int = 1
    reads_payloads: bool = True
    model: TrainedModel | None = None
    all_reduce: "Callable[[Report], DeviceAllReduce] | None" = None
    synchronized: SynchronizedCompute | None = None


class ComputeBackend(ABC):
    """One kind of compute. A subclass states its properties as class attributes and creates a rank's computation.

    The constructor takes the options of the experiment file as keyword arguments, and raises ValueError for an invalid
    value. The module is imported wherever experiments are read: import heavy packages in ``create`` only.

    - ``title``: its name in messages.
    - ``real_time``: its work takes real time, so it cannot run in virtual time or dilated. A simulation does not run it
      and uses the times of the experiment file instead.
    - ``takes_known_times``: each action takes the time that ``costs`` has for this GPU, drawn where its times vary.
    - ``planning_profile``: the compute profile to plan and simulate with if the file names none. None: the times are
      those written in the file.
    - ``trains``: it trains the model, of which it needs all dimensions. It can read tokens from a text, sends the
      model's activations and gradients, and records losses and gradients.
    - ``saves_state``: its ``Computation`` has a ``model``, so that training can begin again at a checkpoint. One that
      does not train has no state.
    - ``on_device``: it computes on a device. The file may choose the device, and GPUs are assigned to the hosts.
    - ``sums_on_device``: torch's collectives can sum its gradients on the device instead of the ring.
    - ``completes_buckets``: it computes by a ``BucketCompute``, so that all-reduces may overlap with backwards.
    - ``sums_flushes``: it computes by a ``FlushCompute``, so that the gradients of each flush may be all-reduced.
    - ``synchronizes``: its ``Computation`` has ``synchronized``, so that replicas may train alone between
      synchronisations.
    - ``encodes``: it encodes the messages between stages as ``ComputeConfig.encoded`` says.
    - ``swaps``: it swaps the layers of a whole model through a device, as ``TrainingDevice.swapping`` says. One that
      takes known times need not: its times include the waits.
    - ``torch_schedules``: torch's own schedules (baselines) can train instead of it.
    - ``virtual_stages``: it computes stages that are divided into virtual stages. Messages then have the chunk of the
      stage that they come from or go to, as actions have.
    - ``computes_prefill``: torch computes prefill too, on the same device. Otherwise prefill is replayed.
    - ``rendezvous_timeout_ns``: the limit of the rendezvous of its ranks, from their start.
    """

    title: ClassVar[str]
    real_time: ClassVar[bool] = False
    takes_known_times: ClassVar[bool] = False
    planning_profile: ClassVar[str | None] = None
    trains: ClassVar[bool] = False
    saves_state: ClassVar[bool] = False
    on_device: ClassVar[bool] = False
    sums_on_device: ClassVar[bool] = False
    completes_buckets: ClassVar[bool] = False
    sums_flushes: ClassVar[bool] = False
    synchronizes: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    swaps: ClassVar[bool] = False
    torch_schedules: ClassVar[bool] = False
    virtual_stages: ClassVar[bool] = False
    computes_prefill: ClassVar[bool] = False
    rendezvous_timeout_ns: ClassVar[int] = DEFAULT_RENDEZVOUS_TIMEOUT_NS

    def missing(self) -> str | None:
        """Return one line with what this machine lacks for this back end, and the remedy; None if it lacks nothing."""
        return None

    @abstractmethod
    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Create a rank's computation, before the rank has connected to its peers.

        Raise ValueError or OSError, one line, for a configuration that it cannot compute.
        """


def load_backend(class_path: str) -> type[ComputeBackend]:
    """Return the back end's class at ``"package.module:Class"``. Raise ValueError with the path and the fault."""
    return load_subclass(class_path, ComputeBackend)


def create_backend(class_path: str, options: Mapping[str, Any]) -> ComputeBackend:
    """Create a back end. Raise ValueError if the path or the options are not valid."""
    backend: ComputeBackend = create(class_path, ComputeBackend, **options)
    return backend
