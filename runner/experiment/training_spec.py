"""Define the section ``training`` of the experiment file, and what a variant overrides of it."""

from functools import partial
from operator import eq, not_
from typing import Annotated, Literal

from pydantic import Field

from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import Fraction, SizeBytes
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import MAX_PIPELINES, LearningRate, NameOrPath, Truth, whole_number
from wanbed.workloads.gpt.gpt_config import MAX_LAYERS
from wanbed.workloads.gpt.learnt_text import DEFAULT_FRACTION, DEFAULT_SEQUENCES

MAX_STAGES = 1024
MAX_MICROBATCHES = 4096
MAX_VIRTUAL_STAGES = 64
MAX_HELD_OUT_SEQUENCES = 65_536

OptimizerWaits = Literal["own", "all stages"]
"""Gradients that the optimizer step of a stage waits for."""

Layers = Literal["even", "balanced"] | tuple[Annotated[int, whole_number(1, MAX_LAYERS)], ...]
"""The division of the model's layers over the stages."""

Summed = Literal["once", "every flush"]
"""When replicas all-reduce the gradients of an iteration of several flushes."""


class TrainingSpec(StrictModel):
    """The size and length of the training."""

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = Field(
        default=None,
        description="Number of stages of a pipeline, one on each GPU. Default: as many as the GPUs allow with that "
        "many pipelines.",
        examples=[6],
    )
    layers: Layers = Field(
        default="even",
        exclude_if=partial(eq, "even"),
        description="How the model's layers are divided over the stages: `even`, the same number for each; `balanced`, "
        "so that the slowest stage takes as little time as can be, with embedding, head and slower GPUs by the compute "
        "profile; or a list with the number of each stage.",
        examples=["balanced", [3, 3, 3, 2]],
    )
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] = Field(
        default=1, description="Number of pipelines, replicas of the model.", examples=[2]
    )
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] = Field(
        default=16,
        description="Number of microbatches of one sequence each, per pipeline and iteration, or per flush.",
        examples=[8],
    )
    accumulate: Annotated[int, whole_number(1, MAX_MICROBATCHES)] = Field(
        default=1,
        exclude_if=partial(eq, 1),
        description="Number of flushes of a pipeline in an iteration, each of `microbatches`. Their gradients add up "
        "before the optimizer steps.",
        examples=[4],
    )
    summed: Summed = Field(
        default="once",
        exclude_if=partial(eq, "once"),
        description="When replicas all-reduce gradients: `once`, those of all flushes after the last one, or `every "
        "flush`, those of each before the next one begins.",
        examples=["every flush"],
    )
    iterations: Annotated[int, whole_number(1, MAX_ITERATIONS)] = Field(
        default=3, description="Number of iterations of a trial, warm-up included.", examples=[10]
    )
    warmup: Annotated[int, whole_number(0, MAX_ITERATIONS)] = Field(
        default=1,
        description="Number of first iterations that are run and kept, but count in no figure. Must leave at least one "
        "of `iterations`.",
        examples=[2],
    )
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = Field(
        default=None,
        description="The most microbatches that a stage may hold at once. Default: no limit, and twice the stages "
        "for `zb-2p`.",
        examples=[6],
    )
    memory: SizeBytes | None = Field(
        default=None,
        exclude_if=not_,
        description="Memory of a GPU for training: a stage holds as many microbatches at once as fit beside its "
        "weights, gradients and optimizer, by the dimensions of `model`, and no more than `memory_bound`. Default: no "
        "limit.",
        examples=["80GiB"],
    )
    virtual_stages: Annotated[int, whole_number(1, MAX_VIRTUAL_STAGES)] = Field(
        default=1,
        exclude_if=partial(eq, 1),
        description="Number of parts of the model that each GPU holds, for schedules `interleaved-1f1b` and `zb-v`. "
        "Each takes its share of the stage's time, and counts as much in `memory_bound`.",
        examples=[2],
    )
    optimizer_waits: OptimizerWaits = Field(
        default="own",
        exclude_if=partial(eq, "own"),
        description="What a stage's optimizer step waits for: `own`, its own gradients and their all-reduce, or `all "
        "stages`, those of every stage of every pipeline and the all-reduce of the gradient norm, by which most "
        "trainings clip.",
        examples=["all stages"],
    )
    precision: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16",
        description="Precision of activations, weights and gradients, which gives their sizes. Torch does not train in "
        "`fp16`.",
        examples=["fp32"],
    )
    learning_rate: LearningRate = Field(
        default=3e-4, description="Learning rate of AdamW, where torch trains.", examples=[0.001]
    )
    text: NameOrPath | None = Field(
        default=None,
        description="What to learn from where torch trains: `python-topics`, a text that comes with Python, or a file, "
        "relative to the experiment file. Default: synthetic tokens from the seed.",
        examples=["python-topics", "corpus.txt"],
    )
    evaluate_every: Annotated[int, whole_number(1, MAX_ITERATIONS)] | None = Field(
        default=None,
        exclude_if=not_,
        description="Number of iterations from one evaluation on held-out sequences to the next, where torch trains; "
        "after the last one there is always one. It counts in no iteration time. Default: none is made.",
        examples=[10],
    )
    held_out: Fraction = Field(
        default=DEFAULT_FRACTION,
        exclude_if=partial(eq, DEFAULT_FRACTION),
        description="Share of `text`, its end, that is held out from learning for `evaluate_every`.",
        examples=["5%"],
    )
    held_out_sequences: Annotated[int, whole_number(1, MAX_HELD_OUT_SEQUENCES)] = Field(
        default=DEFAULT_SEQUENCES,
        exclude_if=partial(eq, DEFAULT_SEQUENCES),
        description="Number of held-out sequences of which an evaluation takes the mean loss.",
        examples=[32],
    )
    vary_seed: Truth = Field(
        default=False,
        exclude_if=not_,
        description="Whether repeat k learns with seed `seed` + k, other weights and other tokens, so that repeats "
        "show how much losses differ by chance. Default: false, all repeats learn the same.",
        examples=[True],
    )


class VariantTrainingSpec(StrictModel):
    """The fields of ``training`` that a variant overrides.

    All variants of a sweep point train on the same number of sequences an iteration.
    """

    stages: Annotated[int, whole_number(1, MAX_STAGES)] | None = Field(
        default=None, description="Replaces `training.stages`. Default: the same.", examples=[1]
    )
    layers: Layers | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.layers`. Default: the same.",
        examples=["balanced"],
    )
    pipelines: Annotated[int, whole_number(1, MAX_PIPELINES)] | None = Field(
        default=None, description="Replaces `training.pipelines`. Default: the same.", examples=[8]
    )
    microbatches: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = Field(
        default=None, description="Replaces `training.microbatches`. Default: the same.", examples=[1]
    )
    accumulate: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.accumulate`. Default: the same.",
        examples=[8],
    )
    summed: Summed | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.summed`. Default: the same.",
        examples=["every flush"],
    )
    memory_bound: Annotated[int, whole_number(1, MAX_MICROBATCHES)] | None = Field(
        default=None, description="Replaces `training.memory_bound`. Default: the same.", examples=[12]
    )
    memory: SizeBytes | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.memory`. Default: the same.",
        examples=["40GiB"],
    )
    virtual_stages: Annotated[int, whole_number(1, MAX_VIRTUAL_STAGES)] | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.virtual_stages`. Default: the same.",
        examples=[2],
    )
    optimizer_waits: OptimizerWaits | None = Field(
        default=None,
        exclude_if=not_,
        description="Replaces `training.optimizer_waits`. Default: the same.",
        examples=["all stages"],
    )
