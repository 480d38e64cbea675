"""Define the ``options`` of variants with ``schedule: diloco`` and ``schedule: atom``."""

from typing import Any, Literal

from pydantic import Field, JsonValue

from wanbed.ground.strict_model import StrictModel, parse_section
from wanbed.ground.units import BytesPerSecond, SizeBytes
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import MAX_PIPELINES, PrintableName


class OuterSpec(StrictModel):
    """The outer optimizer: SGD with Nesterov's momentum."""

    lr: float = Field(default=0.7, gt=0, le=10, strict=True, description="Learning rate.", examples=[0.7])
    momentum: float = Field(default=0.9, ge=0, lt=1, strict=True, description="Momentum.", examples=[0.9])


class SynchronizationOptions(StrictModel):
    """The moments at which replicas synchronise, the outer optimizer, and the wire."""

    sync_every: int = Field(
        ge=1,
        le=MAX_ITERATIONS,
        strict=True,
        description="Every parameter is synchronised once in so many iterations. Where `fragments` do not divide it, "
        "it is rounded to what they divide.",
        examples=[20],
    )
    fragments: int = Field(
        default=1,
        ge=1,
        le=MAX_ITERATIONS,
        strict=True,
        description="Number of fragments that the parameters of a stage are cut into. One is synchronised every "
        "`sync_every / fragments` iterations, rounded, in turn.",
        examples=[4],
    )
    delay: int = Field(
        default=0,
        ge=0,
        le=MAX_ITERATIONS,
        strict=True,
        description="Iterations between the begin of a synchronisation and its application, during which it overlaps "
        "with computation. Less than `sync_every / fragments`.",
        examples=[2],
    )
    alpha: float = Field(
        default=0.0,
        ge=0,
        le=1,
        strict=True,
        description="Share of its own parameters that a replica keeps when it takes over the synchronised ones.",
        examples=[0.5],
    )
    outer: OuterSpec = Field(
        default=OuterSpec(), description="Outer optimizer.", examples=[{"lr": 0.7, "momentum": 0.9}]
    )
    wire: Literal["fp32", "bf16", "fp16", "int8", "fp8", "fp4"] = Field(
        default="fp32", description="Format of pseudo-gradients between replicas.", examples=["int8"]
    )
    topology: Literal["ring", "star"] = Field(
        default="ring", description="Between whom pseudo-gradients go.", examples=["ring"]
    )
    quorum: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PIPELINES,
        strict=True,
        description="With a star, how many replicas a synchronisation waits for. Default: all.",
        examples=[2],
    )


class DilocoOptions(SynchronizationOptions):
    """The schedule by which each replica trains, and the moments at which the replicas synchronise."""

    inner: PrintableName = Field(
        default="1f1b", description="Schedule of the stages of each replica.", examples=["zb-h1"]
    )
    inner_options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of the inner schedule.", examples=[{"warmup_depth": 3}]
    )


def parse_diloco_options(options: dict[str, Any], field: str) -> DilocoOptions:
    """Return the options at ``field`` of the experiment file. Raise InputError, one line for each mistake."""
    return parse_section(DilocoOptions, options, field)


class AtomOptions(SynchronizationOptions):
    """The options of ATOM: the swapping of a whole model through one GPU, and the averaging of the replicas."""

    swap: BytesPerSecond = Field(
        description="Rate at which layers are loaded from host memory into the GPU.", examples=["12GB/s"]
    )
    memory: SizeBytes | None = Field(
        default=None,
        description="What the GPU has for the weights of two groups of layers: the one that computes, and the one that "
        "is loaded meanwhile. Default: no limit.",
        examples=["16GiB"],
    )
    topology: Literal["ring", "star"] = Field(
        default="star", description="Between whom pseudo-gradients go.", examples=["star"]
    )


def parse_atom_options(options: dict[str, Any], field: str) -> AtomOptions:
    """Return the options at ``field`` of the experiment file. Raise InputError, one line for each mistake."""
    return parse_section(AtomOptions, options, field)
