"""Define the whole experiment file.

Unknown fields raise an error, so that no value is silently ignored. Each field is described where it is defined;
``docs/experiment-file.md`` and the JSON schema are made from these descriptions. Checks across sections (does the model
fit the topology?) happen when sweep points are resolved.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import eq, not_
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from wanbed.ground.errors import shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.runner.companions.background.spec import BackgroundSpec, check_background
from wanbed.runner.companions.faults.spec import MAX_CHECKPOINT_EVERY, MAX_FAULTS, FaultSpec, Recovery
from wanbed.runner.companions.prefill.spec import PrefillSpec
from wanbed.runner.experiment.compute_spec import WRITTEN_COSTS, ComputeSpec
from wanbed.runner.experiment.job_spec import JobSpec, beside_jobs, check_jobs
from wanbed.runner.experiment.model_spec import DEFAULT_MODEL, WrittenModel
from wanbed.runner.experiment.quantities import AUTO, Dilation, PrintableName, whole_number
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.trainings.registry import TRACE
from wanbed.testbed.network.links.link_spec import FIGURES
from wanbed.testbed.network.topology_spec import TopologySpec, WanSpec

MAX_REPEATS = 1000
MAX_VARIANTS = 100

Clock = Literal["real", "virtual"]
"""The clock of the emulation, or of the emulation that a simulation predicts."""


class ExperimentSpec(StrictModel):
    """The whole experiment file. Only ``topology`` is required."""

    name: PrintableName = Field(
        default="experiment",
        description="Name of the experiment in its run's folder and report. Default: the file's name, no suffix.",
        examples=["atlas-vs-baselines"],
    )
    topology: TopologySpec = Field(
        description="Datacenters and the network between them, or the path of a YAML file that describes them.",
        examples=[
            {
                "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                "wan": {"latency": "20ms", "rate": "1Gbit"},
            }
        ],
    )
    traces: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=not_,
        description="The text of traces that links name, by their path, in place of the files. A run keeps here what "
        "it has read from files.",
        examples=[{"drift.csv": "t_s,rate\n0,1Gbit\n30,500Mbit\n"}],
    )
    model: WrittenModel | None = Field(
        default=None,
        description="The model that trains: a known name, or its dimensions. Default: gpt-a, but no model where "
        "`compute` states costs of the stages itself; layers are then not limited, and tokens not counted.",
        examples=["gpt-b", {"hidden": 4096, "context": 4096}],
    )
    compute: ComputeSpec = Field(
        default=ComputeSpec(),
        description="How the stages compute.",
        examples=[{"forward": "20ms", "backward": "40ms", "activation": "1MiB"}, {"profile": "a100"}],
    )
    training: TrainingSpec = Field(
        default=TrainingSpec(),
        description="The size and length of the training.",
        examples=[{"pipelines": 2, "microbatches": 8}],
    )
    variants: tuple[VariantSpec, ...] = Field(
        default=(VariantSpec(name="gpipe", schedule="gpipe"),),
        description="What is compared, 1 to 100 variants, at each sweep point. Default: one, `gpipe` over one "
        "connection.",
        examples=[[{"name": "atlas", "schedule": "atlas", "transport": {"connections": "auto"}}]],
    )
    jobs: tuple[JobSpec, ...] = Field(
        default=(),
        exclude_if=not_,
        description="Trainings that share the WAN, two or more, each with hosts of its own. Their variants run alone "
        "and at once. Default: variants have all hosts, and run one after the other.",
        examples=[
            [
                {"name": "ours", "hosts": {"east": 2, "west": 2}, "variants": ["atlas"]},
                {"name": "other", "hosts": {"east": 1, "west": 1}, "variants": ["1f1b"]},
            ]
        ],
    )
    background: tuple[BackgroundSpec, ...] = Field(
        default=(),
        exclude_if=not_,
        description="Traffic on the WAN that trains nothing, while training runs. Default: none.",
        examples=[[{"name": "backup", "from": "east", "to": "west", "connections": 4}]],
    )
    prefill: PrefillSpec | None = Field(
        default=None,
        description="Prefill of inference requests in the bubbles of training. Default: none.",
        examples=[{"trace": "poisson", "rate": "30/s"}],
    )
    fail: tuple[FaultSpec, ...] = Field(
        default=(),
        exclude_if=not_,
        description="What fails during each trial, and when: hosts, ranks, gateways. Default: nothing.",
        examples=[[{"host": "east-1", "at": "20s"}]],
    )
    recovery: Recovery = Field(
        default="none",
        exclude_if=partial(eq, "none"),
        description="What a training does about a failure: it ends, or it begins again (`restart`) at its last "
        "checkpoint, on the hosts that are left.",
        examples=["restart"],
    )
    checkpoint_every: Annotated[int, whole_number(1, MAX_CHECKPOINT_EVERY)] = Field(
        default=1,
        exclude_if=partial(eq, 1),
        description="Number of iterations from one checkpoint to the next, with `recovery: restart`.",
        examples=[5],
    )
    sweep: dict[str, tuple[JsonValue, ...]] = Field(
        default_factory=dict,
        description="Values to try, in a list for each path. Every combination is a sweep point.",
        examples=[{"topology.wan.latency": ["10ms", "40ms"], "training.microbatches": [8, 16]}],
    )
    repeats: Annotated[int, whole_number(1, MAX_REPEATS)] = Field(
        default=1, description="Number of trials of each variant at each sweep point.", examples=[5]
    )
    seed: Annotated[int, whole_number(0, 2**63 - 1)] = Field(
        default=0, description="Seed of weights, tokens, arrivals, lengths and drawn compute times.", examples=[1]
    )
    engine: Literal["emulate", "rack", "simulate"] = Field(
        default="emulate",
        description="`emulate` sends real bytes over an emulated network on this machine, `rack` over one that is "
        "spread over the machines of a Ray cluster (`wanbed run --rack`), `simulate` follows discrete events.",
        examples=["simulate"],
    )
    clock: Clock = Field(
        default="real",
        description="Clock of the emulation, or of the emulation that a simulation predicts. On the `virtual` one "
        "computation costs no time and idle time is skipped.",
        examples=["virtual"],
    )
    dilation: Dilation = Field(
        default=AUTO,
        description="Factor by which the emulation is slowed down, so that a machine can carry its links. `auto` is 1 "
        "if it can, and otherwise as much as it needs. Figures are in undilated time.",
        examples=[1, "auto"],
    )

    @model_validator(mode="before")
    @classmethod
    def _default_model(cls, written: object) -> object:
        if not isinstance(written, Mapping) or "model" in written:
            return written
        compute = written.get("compute")
        if isinstance(compute, Mapping) and compute.get("trace") is not None:
            return written
        stated = compute if isinstance(compute, Mapping) and compute.get("profile") is None else {}
        if any(stated.get(name) is not None for name in WRITTEN_COSTS):
            return written
        return {**written, "model": DEFAULT_MODEL}

    @model_validator(mode="before")
    @classmethod
    def _replay_the_trace(cls, written: object) -> object:
        """Let variants replay ``compute.trace`` where they have no schedule."""
        compute = written.get("compute") if isinstance(written, Mapping) else None
        if not isinstance(written, Mapping) or not isinstance(compute, Mapping) or compute.get("trace") is None:
            return written
        variants = written.get("variants", ({"name": TRACE},))
        if not isinstance(variants, list | tuple):
            return written
        replaying = [
            {"schedule": TRACE, **variant}
            if isinstance(variant, Mapping) and variant.get("program") is None
            else variant
            for variant in variants
        ]
        return {**written, "variants": replaying}

    @field_validator("sweep", mode="before")
    @classmethod
    def _sweep_holds_lists(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            raise ValueError("give a mapping of paths to lists, like {topology.wan.latency: [10ms, 40ms]}")
        for path, values in written.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{path}: {shown(values)} is no list of values, write it like [10ms, 40ms]")
        return written

    def exclusions(self) -> Iterator[Exclusion]:
        """Declare what does not go with several jobs, or with a trace."""
        if self.jobs:
            yield from beside_jobs(self.jobs, self.variants)
        own = "compute.trace has its own order of work"
        for position, variant in enumerate(self.variants if self.compute.trace is not None else ()):
            follows = variant.schedule != TRACE and variant.program is None
            yield Exclusion(f"variants.{position}.schedule", own, leave="schedule or compute.trace", when=follows)

    @model_validator(mode="after")
    def _traces_are_replayed(self) -> "ExperimentSpec":
        for position, variant in enumerate(self.variants):
            replays = variant.schedule == TRACE
            if replays and self.compute.trace is None:
                raise ValueError(
                    f"variants.{position}.schedule: give compute.trace, which it replays, or another schedule"
                )
        return self

    @model_validator(mode="after")
    def _prefill_is_described(self) -> "ExperimentSpec":
        for position, variant in enumerate(self.variants):
            for name in ("prefill", "pool"):
                if self.prefill is None and getattr(variant, name) not in {None, 0, "none"}:
                    raise ValueError(
                        f"variants.{position}.{name}: there is no section prefill: give one, like "
                        "{trace: poisson, rate: 4/s}"
                    )
        return self

    @model_validator(mode="after")
    def _jobs_divide_the_variants(self) -> "ExperimentSpec":
        if self.jobs:
            check_jobs(self.jobs, self.variants)
        return self

    @model_validator(mode="after")
    def _background_runs_beside_ranks(self) -> "ExperimentSpec":
        if self.background:
            check_background(self.background)
        return self

    @field_validator("fail")
    @classmethod
    def _few_faults(cls, faults: tuple[FaultSpec, ...]) -> tuple[FaultSpec, ...]:
        if len(faults) > MAX_FAULTS:
            raise ValueError(f"there are {len(faults)}, give {MAX_FAULTS} at most")
        return faults

    @field_validator("variants")
    @classmethod
    def _names_are_unique(cls, variants: tuple[VariantSpec, ...]) -> tuple[VariantSpec, ...]:
        if not 1 <= len(variants) <= MAX_VARIANTS:
            raise ValueError(f"there are {len(variants)}, give 1 to {MAX_VARIANTS}")
        names = [variant.name for variant in variants]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise ValueError(f"two variants are named {name!r}, give each its own name")
        return variants

    def document(self) -> dict[str, Any]:
        """Return the experiment file in plain JSON types, with every default filled in.

        Reading the document gives an equal experiment. Links keep only the fields that were written, because the
        others follow ``wan``, which a sweep may change. Values that are derived from others (a backward of twice the
        forward) stay null for the same reason.
        """
        document = self.model_dump(mode="json")
        document["topology"]["links"] = [
            link.model_dump(mode="json", exclude_unset=True) for link in self.topology.links
        ]
        if self.topology.wan is not None:
            document["topology"]["wan"] = _written_link(self.topology.wan)
        return document


def _written_link(wan: WanSpec) -> dict[str, Any]:
    """Return ``wan`` with every default filled in, but without keys of changes that there are not."""
    document = wan.model_dump(mode="json")
    return {name: value for name, value in document.items() if name in FIGURES or getattr(wan, name)}
