"""Gather the manifest of a run: the facts that trace a report back to its code, machine and configuration."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wanbed.results.records.schema import SCHEMA_VERSION
from wanbed.results.records.schema_upgrade import SCHEMA_VERSION_KEY
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.resolve.known_misses import misses_by_variant
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.runs.environment import (
    foreign_compute,
    foreign_schedules,
    git_state_at_start,
    library_versions,
    machine_facts,
)
from wanbed.runner.runs.not_modelled import as_written, planned_for_begin, planned_without, simulated_without
from wanbed.runner.runs.trial_facts import background_facts

_CHECKOUT = Path(__file__).parents[3]


def gather_manifest(
    experiment: Experiment, *, created: datetime | None = None, checkout: Path = _CHECKOUT
) -> dict[str, Any]:
    """Return everything about a run that is known before it starts, in plain JSON types.

    ``created`` defaults to the current time and is written in UTC. ``checkout`` is the folder whose git revision is
    recorded. Facts that cannot be read are null. ``warmup_iterations`` and ``tokens_per_iteration`` are null if they
    differ between sweep points; each entry of ``sweep_points`` has its own. A simulation has no ``clock``, and its
    ``repeats`` is 1. The substrate, the dilation, and the qdiscs, sysctls and offloads that are read back are not
    included: they are known only when the testbed is up.
    """
    points = experiment.points()
    spec = experiment.spec
    document = experiment.document()
    return {
        SCHEMA_VERSION_KEY: SCHEMA_VERSION,
        "name": experiment.name,
        "created": (created or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
        "experiment": document,
        "config_hash": experiment.config_hash,
        "seed": spec.seed,
        "repeats": experiment.repeats,
        "engine": spec.engine,
        "clock": None if spec.engine == "simulate" else spec.clock,
        "variants": [
            {"name": variant["name"], "schedule": variant["schedule"], "transport": variant["transport"]}
            for variant in document["variants"]
        ]
        + _beside_others(points[0]),
        "sweep_points": [
            {
                "index": point.index,
                "sweep_point": dict(point.values),
                "warmup_iterations": point.spec.training.warmup,
                "tokens_per_iteration": point.tokens_per_iteration,
                **_without(point),
                **_profile_facts(point),
                **_search_facts(point),
                **background_facts(point.background),
                **point.resolved(),
            }
            for point in points
        ],
        "training": document["training"],
        "warmup_iterations": _if_same([point.spec.training.warmup for point in points]),
        "tokens_per_iteration": _if_same([point.tokens_per_iteration for point in points]),
        "versions": library_versions(),
        "git": git_state_at_start(checkout),
        "foreign_schedules": foreign_schedules(name for variant in spec.variants for name in variant.schedules),
        "foreign_compute": foreign_compute(point.spec.compute.kind for point in points),
        **machine_facts(),
    }


def _beside_others(point: SweepPoint) -> list[dict[str, Any]]:
    """Return the entry of each variant of a job while those of other jobs run."""
    return [
        {
            "name": variant.name,
            "schedule": variant.spec.schedule,
            "transport": variant.spec.transport.model_dump(mode="json"),
        }
        for variant in point.variants
        if variant.beside
    ]


def _without(point: SweepPoint) -> dict[str, Any]:
    """Return what the simulation of a sweep point, or the planner that placed its stages, does not model or misses."""
    simulated = point.spec.engine == "simulate"
    planned = planned_for_begin if simulated else planned_without
    return {
        **({"known_misses": misses_by_variant(point)} if simulated else {}),
        "not_modelled": as_written(simulated_without(point.spec, point.topology) if simulated else ()),
        "planned_without": as_written(planned(point.spec, point.topology)),
    }


def _profile_facts(point: SweepPoint) -> dict[str, Any]:
    """Return a sweep point's fact on its measured compute profile; none without one.

    ``profile_conditions`` has the device's driver, the versions, and whether torch used only kernels that give the same
    bits in every run (``deterministic``, null if the file does not say).
    """
    conditions = point.profile_conditions
    if conditions is None:
        return {}
    kept = conditions.model_dump(mode="json", include={"measured_at", "driver", "versions", "deterministic"})
    return {"profile_conditions": kept}


def _search_facts(point: SweepPoint) -> dict[str, Any]:
    """Return the searches of a sweep point as an entry of the manifest; {} if no placement is ``auto``."""
    searches = {
        variant.name: {**asdict(variant.planned), "datacenters": list(variant.planned.datacenters)}
        for variant in point.variants
        if isinstance(variant, PipelineVariant) and variant.planned is not None
    }
    return {"placement_searches": searches} if searches else {}


def without_repetition(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the facts of many owners: ``{owner: {name: value}}`` becomes ``{name: value}``.

    If owners differ, the value is ``{owner: value}`` for those that have one.
    """
    names = dict.fromkeys(name for own in facts.values() for name in own)
    lines: dict[str, Any] = {}
    for name in names:
        values = {owner: own[name] for owner, own in facts.items() if name in own}
        first = next(iter(values.values()))
        agree = len(values) == len(facts) and all(value == first for value in values.values())
        lines[name] = first if agree else values
    return lines


def _if_same(values: list[int] | list[int | None]) -> int | None:
    return values[0] if len(set(values)) == 1 else None
