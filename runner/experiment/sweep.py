"""Expand a sweep into its sweep points, one for every combination of the listed values, each with its network.

Stages are not placed yet.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import permutations, product
from math import prod
from typing import Any

from wanbed.ground.errors import InputError, prefixed, shortened, shown
from wanbed.ground.exclusions import Declared, Exclusion, KnownName, Refusal, as_check
from wanbed.netem_profiles.named_network import resolve_named_network
from wanbed.netem_profiles.traces import load_offered_trace
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.field_path import Steps, located, parse_path, with_value
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.topology import Topology, with_flow_hosts

MAX_SWEEP_POINTS = 1000

MAX_TRIALS = 100_000
"""The most trials in one run. Each trial is a folder."""

ONE_FOR_THE_RUN = {"name", "traces", "sweep", "repeats", "seed", "engine", "clock", "dilation", "variants"}


def value_text(value: Any) -> str:
    """Return a swept value as tables and charts show it: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def swept_paths(sweep: Mapping[str, Sequence[Any]], document: Mapping[str, Any]) -> dict[str, Steps]:
    """Return the steps of every swept path of ``document``, in alphabetical order of the paths.

    Raise InputError for:

    - a path that does not exist (with the nearest name), or a field that is the same for the whole run;
    - two paths of which one lies inside the other;
    - a value that is listed twice or has unprintable characters;
    - more than ``MAX_SWEEP_POINTS`` sweep points.
    """
    paths: dict[str, Steps] = {}
    for path in sorted(sweep):
        with prefixed(f"sweep: {path}: "):
            paths[path] = _steps(path, sweep[path], paths, document)
    points = prod(len(values) for values in sweep.values())
    if points > MAX_SWEEP_POINTS:
        raise InputError(f"sweep: {points} sweep points, more than the {MAX_SWEEP_POINTS} that one run takes: split it")
    return paths


def _steps(path: str, values: Sequence[Any], earlier_paths: Mapping[str, Steps], document: Mapping[str, Any]) -> Steps:
    steps = parse_path(path)
    place = located(document, steps)
    if steps[0] in ONE_FOR_THE_RUN and (steps[0] != "variants" or len(steps) < 3 or steps[2] == "name"):
        raise InputError("a run has one for all its sweep points, leave it out of the sweep")
    for other, earlier_steps in earlier_paths.items():
        earlier = located(document, earlier_steps)
        if place[: len(earlier)] == earlier or earlier[: len(place)] == place:
            raise InputError(f"is swept by {other} as well, leave one of them out")
    texts = [value_text(value) for value in values]
    for position, text in enumerate(texts):
        if text in texts[:position]:
            raise InputError(f"the value {text!r} is there twice, leave one of them out")
        if not text.isprintable():
            raise InputError(f"the value {text!r} has unprintable characters")
    return steps


def combinations(sweep: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], ...]:
    """Return the values of each sweep point by path.

    The alphabetically last path varies fastest; the values of a path keep the order of the file. The order of the
    paths in the file does not matter, so the index of a sweep point stays the same when the file is written out again.
    Without a sweep there is one sweep point, {}.
    """
    paths = sorted(sweep)
    return tuple(dict(zip(paths, values, strict=True)) for values in product(*(sweep[path] for path in paths)))


_NAMED = 5
"""The most missing links that are named."""


@dataclass(frozen=True)
class SweepPointSpec:
    """One combination of swept values and its network.

    ``values`` holds the swept values as text by path. ``source`` starts error messages. ``traces`` has the text of each
    trace that a link or a flow in the background names, by its path as written; ``offered`` has the rates of flows.
    """

    index: int
    values: Mapping[str, str]
    spec: ExperimentSpec
    topology: Topology
    source: str
    traces: Mapping[str, str] = field(default_factory=dict)
    offered: Mapping[str, ConditionTrace] = field(default_factory=dict)


def sweep_point_specs(document: ExperimentDocument) -> Iterator[SweepPointSpec]:
    """Yield the sweep points of an experiment in order of their index.

    Raise InputError, one line with source, field and remedy, for an invalid sweep, and for the first sweep point with
    invalid fields or an invalid network, or with the values of an earlier one.
    """
    spec, source, directory = document.spec, document.source, document.directory
    with prefixed(f"{source}: "):
        paths = swept_paths(spec.sweep, document.fields)
    # Whether the file has a model is decided once, so that a sweep over costs does not take it away at its points.
    fields = {**spec.model_dump(mode="json", include={"model"}), **document.fields}
    seen: dict[str, Mapping[str, str]] = {}
    for index, values in enumerate(combinations(spec.sweep)):
        texts = {path: value_text(value) for path, value in values.items()}
        here = (
            f"{source}: sweep: at {', '.join(f'{path}={shortened(text)}' for path, text in texts.items())}"
            if texts
            else source
        )
        swept: Mapping[str, Any] = fields
        for path, value in values.items():
            with prefixed(f"{source}: sweep: {path}: "):
                swept = with_value(swept, paths[path], value)
        own = spec
        if texts:
            own = ExperimentDocument.of(swept, here, directory).spec
        content = json.dumps(own.document(), sort_keys=True).encode()
        earlier = seen.setdefault(sha256(content).hexdigest(), texts)
        if earlier is not texts:
            raise InputError(f"{source}: sweep: {_same_values(earlier, texts)}")
        with prefixed(f"{here}: "):
            _check_network(own)
            topology, traces = resolve_named_network(own.topology, own.traces, directory, own.seed)
            topology = with_flow_hosts(topology, [(flow.source, flow.destination) for flow in own.background])
            offered = {}
            for flow in own.background:
                if flow.trace is not None:
                    traces[flow.trace], offered[flow.trace] = load_offered_trace(flow.trace, own.traces, directory)
        yield SweepPointSpec(index, texts, own, topology, here, traces, offered)


def _same_values(earlier: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the error for two sweep points whose values are written differently and mean the same."""
    path = next(path for path, text in texts.items() if text != earlier[path])
    return f"{path}: {shown(earlier[path])} and {shown(texts[path])} are the same value, leave one of them out"


@as_check
def _check_network(experiment: ExperimentSpec) -> Iterator[Declared]:
    """Raise InputError for a network that lacks links or has no use for them, and for flows to unknown datacenters."""
    spec = experiment.topology
    names = [datacenter.name for datacenter in spec.datacenters]
    yield Exclusion(
        ("topology.wan", "topology.profile", "topology.scale"),
        "one datacenter has no WAN",
        "add a datacenter",
        when=len(names) == 1,
        given_in=experiment,
    )
    linked = {ends for link in spec.links for ends in ((link.ends, link.ends[::-1]) if link.between else (link.ends,))}
    missing = [ends for ends in permutations(names, 2) if ends not in linked]
    if spec.wan is None and spec.profile is None and missing:
        yield Refusal(
            f"topology.links: {_no_link(missing)}: give wan for all others, like {{latency: 40ms, rate: 10Gbit}}"
            if linked
            else "topology.wan: no network between the datacenters is given: give wan, like "
            "{latency: 40ms, rate: 10Gbit}, or a profile"
        )
    for position, flow in enumerate(experiment.background):
        for name, end in (("from", flow.source), ("to", flow.destination)):
            field, otherwise = f"background.{position}.{name}", f"there are {', '.join(names)}"
            yield KnownName(field, end, names, f"no datacenter {shown(end)}", otherwise)


def _no_link(missing: Sequence[tuple[str, str]]) -> str:
    """Return in words between which datacenters a link is missing, in one direction or in both."""
    said = [
        f"between {one} and {other}" if (other, one) in missing else f"from {one} to {other}"
        for one, other in missing
        if one < other or (other, one) not in missing
    ]
    more = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return f"there is no link {', '.join(said[:_NAMED])}{more}"
