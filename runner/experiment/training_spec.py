"""Define the section ``training`` of the experiment file, and what a variant overrides of it."""

from typing import Annotated, Literal

from ground.strict_model import StrictModel
from runner.experiment.quantities import MAX_PIPELINES, LearningRate, NameOrPath, whole_number

MAX_STAGES = 1024
MAX_MICROBATCHES = 4096
MAX_ITERATIONS = 10_000


class TrainingSpec(StrictModel):
    """The size and length of the training.

    ``stages`` (default: as many as the GPUs allow with that many pipelines), ``pipelines`` (default 1),
    ``microbatches`` of one sequence each per pipeline and iteration (default 16), and ``iterations`` (default 3). The
    first ``warmup`` iterations (default 1) are run and kept, but count in no figure. ``memory_bound`` is how many
    microbatches a stage may hold at once (default: no limit). ``precision`` (default bf16) is that of activations,
    weights and gradients. ``learning_rate`` (default 0.0003) is AdamW's. ``text`` is a file to learn from, relative to
    the experiment file (default: synthetic tokens from the seed).
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = None
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] = 1
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] = 16
    iterations: Annotated[int, whole_number(1, MAX_ITERATIONS)] = 3
    warmup: Annotated[int, whole_number(0, MAX_ITERATIONS)] = 1
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
    precision: Literal["bf16", "fp32"] = "bf16"
    learning_rate: LearningRate = 3e-4
    text: NameOrPath | None = None


class VariantTrainingSpec(StrictModel):
    """The fields of ``training`` that a variant overrides. Fields that are left out keep the value of ``training``.

    All variants of a sweep point train on the same number of sequences an iteration.
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = None
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] | None = None
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = None
