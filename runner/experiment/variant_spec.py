"""Define one entry of the section ``variants`` of the experiment file, and name schedules that are no classes."""

from collections.abc import Iterable, Mapping
from operator import not_
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.runner.companions.prefill.spec import Policy
from wanbed.runner.experiment.quantities import PrintableName, StageDatacenters, whole_number
from wanbed.runner.experiment.training_spec import VariantTrainingSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.trainings.program.spec import ProgramSpec
from wanbed.runner.trainings.registry import PROGRAM, named_trainings
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO

MAX_POOL_GPUS = 65_536


def other_schedules() -> tuple[str, ...]:
    """Return the names that an editor and a refusal offer beside those of classes."""
    return (*BASELINE_SCHEDULES, DILOCO, ATOM, *named_trainings())


class VariantSpec(StrictModel):
    """A variant to compare: a schedule or a program, a transport, and what else differs from the other variants."""

    name: PrintableName = Field(
        description="Name of the variant in tables and charts, each its own.", examples=["many connections"]
    )
    schedule: PrintableName = Field(
        default=PROGRAM,
        description="Schedule by which the stages work: a name of wanbed's or of an installed package's schedules. "
        "It is left out where there is a `program`. Default: the program, or `trace` with `compute.trace`.",
        examples=["1f1b"],
    )
    program: ProgramSpec | None = Field(
        default=None,
        exclude_if=not_,
        description="A program of your own in place of a schedule. Default: none.",
        examples=[{"command": ["python", "train.py"], "launcher": "torchrun", "iterations": 20, "warmup": 5}],
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Options of the schedule, by name: `warmup_depth` of `1f1b` and `eager-1f1b`, `recompute` of "
        "`varuna`, `turns` and [`split`](training.md#split-backwards) of `atlas`, [those](local-updates.md#options) of "
        "`diloco`, [those](atom.md) of `atom`, or those of another package's schedule.",
        examples=[{"recompute": "on-gradient"}, {"warmup_depth": 3}, {"split": "never"}],
    )
    transport: TransportSpec = Field(
        default=TransportSpec(),
        description="The TCP transport between stages.",
        examples=[{"connections": "auto", "window": "512KiB"}],
    )
    placement: StageDatacenters | None = Field(
        default=None,
        description="The datacenter of each stage, in one list for all pipelines or one list for each. `auto` takes "
        "the placement with the shortest simulated iteration that the planner finds. Default: evenly and contiguously, "
        "all replicas of a stage in one datacenter.",
        examples=[["east", "east", "west", "west"], "auto"],
    )
    training: VariantTrainingSpec = Field(
        default=VariantTrainingSpec(),
        description="Fields of the experiment's `training` that this variant overrides.",
        examples=[{"stages": 1, "pipelines": 8, "microbatches": 1}],
    )
    prefill: Policy | None = Field(
        default=None,
        description="When the GPUs that train prefill, if the experiment has a section `prefill`: `planned` in "
        "bubbles, as far as training is not delayed; `greedy` whenever they are idle; `none` never. Default: planned.",
        examples=["greedy"],
    )
    pool: Annotated[int, whole_number(0, MAX_POOL_GPUS)] = Field(
        default=0,
        description="Number of GPUs of the serving hosts that only prefill, over all datacenters.",
        examples=[2],
    )

    @property
    def schedules(self) -> tuple[str, ...]:
        """The schedules that it names: its own, and the one within each replica where those train alone."""
        inner = self.options.get("inner") if self.schedule == DILOCO else None
        return (self.schedule, inner) if isinstance(inner, str) else (self.schedule,)

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare that a program has no schedule."""
        instead = "it takes the place of a schedule"
        return (Exclusion("program", instead, leave="program or schedule", when=self.schedule != PROGRAM),)

    @model_validator(mode="before")
    @classmethod
    def _schedule_or_program(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            return written
        schedule, program = written.get("schedule"), written.get("program")
        if program is None and (schedule is None or schedule == PROGRAM):
            raise ValueError(
                "schedule: this field is required: give a schedule, like 1f1b, or a program, like "
                "{command: [python, train.py]}"
            )
        return written
