"""Define the whole experiment file.

Unknown fields raise an error, so that no value is silently ignored. Defaults are listed in the docstring of each
section. Checks across sections (does the model fit the topology?) happen when sweep points are resolved.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from ground.shown_text import shown
from ground.strict_model import StrictModel
from runner.experiment.compute_spec import ComputeSpec
from runner.experiment.model_spec import NAMED_MODELS, WrittenModel
from runner.experiment.prefill_spec import PrefillSpec
from runner.experiment.quantities import AUTO, Dilation, PrintableName, whole_number
from runner.experiment.training_spec import TrainingSpec
from runner.experiment.variant_spec import VariantSpec
from testbed.network.topology_spec import TopologySpec

MAX_REPEATS = 1000
MAX_VARIANTS = 100

Clock = Literal["real", "virtual"]
"""The clock of the emulation, or of the emulation that a simulation predicts."""


class ExperimentSpec(StrictModel):
    """The whole experiment file. Only ``topology`` is required.

    Defaults: ``name`` is the file's name; the model gpt-a; one variant, GPipe over one connection; no ``prefill``; no
    sweep; 1 repeat; seed 0; engine ``emulate`` (or ``simulate``); clock ``real`` (or ``virtual``, on which computation
    costs no time and idle time is skipped); ``dilation`` auto, which is 1 if the machine can carry the links.
    """

    name: PrintableName = "experiment"
    topology: TopologySpec
    model: WrittenModel = NAMED_MODELS["gpt-a"]
    compute: ComputeSpec = ComputeSpec()
    training: TrainingSpec = TrainingSpec()
    variants: tuple[VariantSpec, ...] = (VariantSpec(name="gpipe", schedule="gpipe"),)
    prefill: PrefillSpec | None = None
    sweep: dict[str, tuple[JsonValue, ...]] = Field(default_factory=dict)
    repeats: Annotated[int, whole_number(1, MAX_REPEATS)] = 1
    seed: Annotated[int, whole_number(0, 2**63 - 1)] = 0
    engine: Literal["emulate", "simulate"] = "emulate"
    clock: Clock = "real"
    dilation: Dilation = AUTO

    @field_validator("sweep", mode="before")
    @classmethod
    def _sweep_holds_lists(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            raise ValueError("give a mapping of paths to lists, like {topology.wan.latency: [10ms, 40ms]}")
        for path, values in written.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{path}: {shown(values)} is no list of values, write it like [10ms, 40ms]")
        return written

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
        forward) stay null for the same reason. Without ``scale`` there is no such key: hashes stay the same.
        """
        document = self.model_dump(mode="json")
        document["topology"]["links"] = [
            link.model_dump(mode="json", by_alias=True, exclude_unset=True) for link in self.topology.links
        ]
        if self.topology.scale is None:
            del document["topology"]["scale"]
        return document
