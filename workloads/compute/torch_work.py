"""The configuration of a torch computation. Needs no torch and goes through JSON."""

from dataclasses import dataclass

from wanbed.workloads.gpt.gpt_config import GptConfig, bytes_per_element
from wanbed.workloads.gpt.learnt_text import HeldOut
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.synchronization.synchronization import Synchronization


@dataclass(frozen=True)
class SwapSettings:
    """``layers_of_groups`` are the groups, None to choose them by times that the rank measures when it begins.

    ``memory_bytes`` is what the device has for the weights of two groups, None for no limit.
    """

    layers_of_groups: tuple[int, ...] | None = None
    memory_bytes: int | None = None


DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class TorchWork:
    """One stage of one pipeline, trained by torch.

    - ``microbatches``: sequences in one iteration, in each of ``pipelines`` pipelines.
    - ``recompute``: the schedule runs forwards again before their backwards at this stage.
    - ``precision``: fp32 or bf16, for weights, activations and gradients.
    - ``device``: auto (cuda if there is a GPU), cpu or cuda.
    - ``seed``: for the initial weights and the synthetic tokens.
    - ``text``: the corpus or file that tokens are read from, None for synthetic tokens.
    - ``held_out``: what is not learnt from, None for nothing.
    - ``split_backward``: the schedule splits backwards.
    - ``threads``: torch's threads on the CPU. The default is one, because ranks share a machine.
    - ``check_iteration``: the iteration that torch.profiler records too, None for none.
    - ``deterministic``: use only kernels that give the same bits in every run.
    - ``virtual``: the virtual stages of a model whose stages are divided, None if they are not.
    - ``synchronization``: how replicas that train alone are kept together, None if they sum their gradients.
    - ``swapping``: how the whole model is swapped through the device, None if it is there all the time.

    Raises ValueError naming the field.
    """

    config: GptConfig
    stages: int
    stage: int
    pipelines: int
    pipeline: int
    microbatches: int
    recompute: bool
    precision: str
    device: str
    seed: int
    learning_rate: float
    text: str | None = None
    split_backward: bool = False
    threads: int = 1
    check_iteration: int | None = None
    deterministic: bool = False
    virtual: VirtualStages | None = None
    synchronization: Synchronization | None = None
    held_out: HeldOut | None = None
    swapping: SwapSettings | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            self.config.layers_of(part, self.all_parts)
        bytes_per_element(self.precision)
        for name, least in (("pipelines", 1), ("microbatches", 1), ("seed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if self.check_iteration is not None and self.check_iteration < 0:
            raise ValueError(f"check_iteration: {self.check_iteration} is below 0")
        if not 0 <= self.pipeline < self.pipelines:
            raise ValueError(f"pipeline: {self.pipeline} is none of the {self.pipelines} pipelines")
        if self.device not in DEVICES:
            raise ValueError(f"device: {self.device!r} is none of {', '.join(DEVICES)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: {self.learning_rate} is not above 0")
        if self.swapping is not None:
            self._check_swapping(self.swapping)

    def _check_swapping(self, swapping: SwapSettings) -> None:
        if self.stages != 1 or self.virtual is not None:
            raise ValueError("swapping: a stage that swaps is the whole model: give 1 stage")
        if self.gradient_replicas != 1:
            raise ValueError("swapping: replicas that swap train alone: give a synchronization, or 1 pipeline")
        if not self.recompute or self.split_backward:
            raise ValueError("swapping: a group computes its forward again before its whole backward")
        groups = swapping.layers_of_groups
        if groups is not None and (min(groups, default=0) < 1 or sum(groups) != self.config.layers):
            raise ValueError(f"swapping: groups of {groups} layers do not make {self.config.layers} layers")

    @property
    def gradient_replicas(self) -> int:
        """The number of replicas whose gradients are summed before an update."""
        return self.pipelines if self.synchronization is None else 1

    @property
    def parts(self) -> tuple[int, ...]:
        """The numbers of the stage's parts of the model: its virtual stages, or itself."""
        virtual = self.virtual
        return (self.stage,) if virtual is None else tuple(virtual.number(self.stage, c) for c in range(virtual.chunks))

    @property
    def all_parts(self) -> int:
        """The number of parts that the model is cut into."""
        return self.stages if self.virtual is None else self.virtual.count
