"""The input of a torch computation, in a form that needs no torch and goes through JSON."""

from dataclasses import dataclass

from workloads.model.gpt_config import GptConfig, bytes_per_element

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class TorchWork:
    """One stage of one pipeline, trained by torch.

    An iteration trains on ``microbatches`` sequences in each of ``pipelines`` pipelines. ``recompute`` and
    ``split_backward`` say what the schedule does at this stage: run forwards again before their backwards, and split
    the backwards. ``precision`` is that of weights, activations and gradients, fp32 or bf16. ``device`` is auto (cuda
    where there is one), cpu or cuda. Weights and synthetic tokens come from ``seed``, tokens from the file ``text``
    where it is given. ``threads`` are those that torch computes with on the CPU: one, because ranks share a machine.
    ``check_iteration`` is one that torch.profiler watches too, None for none.

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

    def __post_init__(self) -> None:
        self.config.layers_of(self.stage, self.stages)
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
