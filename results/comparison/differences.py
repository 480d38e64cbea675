"""Find the fields in which runs differ, by the paths of the experiment file.

``differences`` forbid a comparison of two runs. Networks are compared as resolved, whether they were written out or
taken from a network preset. Computation is compared by the stage costs, since two compute profiles of the same name may
have different figures. A swept path has the same value at both sweep points of a pair; the file's own value for that
path is ignored.

``manifest_differences`` are all fields in which the manifests of several runs differ, for a report.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.comparison.pairing import Pair, pair_runs
from wanbed.results.reading.links import COURSE, directed_links
from wanbed.results.reading.not_modelled import of_links, simulated_without
from wanbed.results.reading.run import Run
from wanbed.results.reading.validity import WaysAround, tcp_is_modelled
from wanbed.results.text import count_text, list_text, milliseconds_text, percent_text, rate_text

CALIBRATION = "calibration"

COMPLETE = "complete"

NOT_SET = "not set"
"""The text of a difference for an absent value."""

_NOT_COMPARED = {"name", "repeats", "sweep", "variants", "dilation", "engine", "clock", "seed"}
"""Fields of the experiment that do not matter, are paired, or are compared as resolved in the manifest."""

_PRICES = re.compile(r"^topology\.(datacenters|links)\..*_price$")
"""Prices change no time. Costs stand beside the times, each by the prices of its run."""

_OF_THE_MANIFEST = ("engine", "clock", "dilation", "seed")

_RESOLVED_WAN = ("topology.wan", "topology.links", "topology.profile", "topology.scale", "traces")

_FRACTIONS = {each.field for each in IMPAIRMENTS if not each.is_duration}

_UNITS = {"_ns": lambda value: milliseconds_text(value / 1e6), "_bps": rate_text}


@dataclass(frozen=True)
class Difference:
    """One field that differs: its path, the value in each run as text, and ``where`` it differs, "" for the whole run.

    ``remedy`` explains how to make the two equal, "" if that is obvious.
    """

    field: str
    a: str
    b: str
    where: str = ""
    remedy: str = ""


def value_text(value: Any) -> str:
    """Return a value of a manifest as one line; ``not set`` for an absent one."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_below(field: str, prefix: str) -> bool:
    """Return whether ``field`` is ``prefix`` or a part of it."""
    return field == prefix or field.startswith(f"{prefix}.")


def differing(a: Mapping[str, Any], b: Mapping[str, Any], where: str = "") -> list[Difference]:
    """Return the fields whose values differ. Absent, null and empty values are equal."""
    return [
        Difference(field, value_text(a.get(field)), value_text(b.get(field)), where)
        for field in dict.fromkeys((*a, *b))
        if (a.get(field) or None) != (b.get(field) or None)
    ]


def run_fields(run: Run) -> dict[str, Any]:
    """Return the fields that must be equal for the whole run, by path, without those that are swept."""
    manifest = run.manifest
    experiment = manifest.get("experiment") or {}
    swept = {path for entry in manifest.get("sweep_points") or () for path in entry.get("sweep_point", {})}
    resolved = any("wan" in entry for entry in manifest.get("sweep_points") or ())
    fields = dict(flattened({name: value for name, value in experiment.items() if name not in _NOT_COMPARED}))
    without = (*swept, *(_RESOLVED_WAN if resolved else ()))
    fields = {
        field: value
        for field, value in fields.items()
        if not any(is_below(field, path) for path in without) and not _PRICES.match(field)
    }
    fields |= {name: manifest.get(name) for name in _OF_THE_MANIFEST}
    return {**fields, "substrate": (manifest.get("substrate") or {}).get("name")}


def price_fields(run: Run) -> dict[str, Any]:
    """Return the prices in a run's experiment, by path."""
    experiment = run.manifest.get("experiment") or {}
    return {field: value for field, value in flattened(experiment) if _PRICES.match(field)}


def point_fields(run: Run, point: int) -> dict[str, Any]:
    """Return the fields that must be equal in one sweep point: the WAN's resolved links and the tokens per iteration.

    An impairment that a simulation does not model differs from the same impairment in an emulation.
    """
    entry = _point_entry(run, point)
    without = {
        (each.field, ends)
        for each in of_links(simulated_without(run.manifest, point))
        for ends in (*each.links, *(pair[::-1] for pair in each.links), *each.directions)
    }
    fields: dict[str, Any] = {"training.tokens_per_iteration": entry.get("tokens_per_iteration")}
    ways: dict[str, dict[tuple[str, str], Any]] = {}
    for ends, link in directed_links(entry):
        for name, value in link.items():
            if name == COURSE:
                ways.setdefault(f"topology.wan.course.{'-'.join(sorted(ends))}", {})[ends] = course_text(value)
                continue
            unit = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
            field, text = f"topology.wan.{name.removesuffix(unit)}", _link_text(name, unit, value)
            marked = f"{text}, not modelled" if (field, ends) in without else text
            ways.setdefault(f"{field}.{'-'.join(sorted(ends))}", {})[ends] = marked
    return {**fields, **{field: _of_both_ways(values) for field, values in ways.items()}}


def _of_both_ways(values: Mapping[tuple[str, str], Any]) -> Any:
    """Return the figure of a link, or those of its two directions where they differ."""
    first, *others = values.values()
    if all(other == first for other in others):
        return first
    return ", ".join(f"{value} {source} to {destination}" for (source, destination), value in sorted(values.items()))


def _link_text(name: str, unit: str, value: Any) -> Any:
    if unit and value is None:
        return "unlimited"
    if unit and isinstance(value, (int, float)):
        return _UNITS[unit](value).replace("\u00a0", " ")
    return percent_text(value).replace("\u00a0", " ") if name in _FRACTIONS else value


def pair_fields(run: Run, point: int, variant: str) -> dict[str, Any]:
    """Return the fields that must be equal for both variants of a pair: compute and transfer costs of every stage."""
    work = ((_point_entry(run, point).get("variants") or {}).get(variant) or {}).get("work") or {}
    return {f"compute.work.{name}": value for name, value in work.items()}


def _point_entry(run: Run, point: int) -> Mapping[str, Any]:
    return next((entry for entry in run.manifest.get("sweep_points") or () if entry.get("index") == point), {})


def differences(a: Run, b: Run, pairs: Iterable[Pair]) -> list[Difference]:
    """Return all differences of two runs, or of their paired sweep points and variants, that forbid a comparison."""
    pairs = list(pairs)
    found = _unfinished(a, b) + _same_tcp(a, b, differing(run_fields(a), run_fields(b)))
    for pair in _one_a_point(pairs):
        found += _over_links(differing(point_fields(a, pair.a.point), point_fields(b, pair.b.point), pair.point_text))
        found += _calibration(a, b, pair)
    for pair in pairs:
        if _cut_alike(a, b, pair):
            works = pair_fields(a, pair.a.point, pair.a.variant), pair_fields(b, pair.b.point, pair.b.variant)
            # What a program computes is written nowhere.
            if all(works):
                found += differing(*works, ", ".join(filter(None, (pair.point_text, pair.variant_text))))
    return _gathered(found)


def _same_tcp(a: Run, b: Run, found: Iterable[Difference]) -> list[Difference]:
    """Return ``found`` with the remedy for two runs of which one's TCP is modelled."""
    if tcp_is_modelled(a.manifest) == tcp_is_modelled(b.manifest):
        return list(found)
    remedy = "TCP is modelled in one of the two: run both with --substrate relay, or both on netem"
    return [replace(each, remedy=remedy) if each.field == "substrate" else each for each in found]


def _one_a_point(pairs: Iterable[Pair]) -> Iterable[Pair]:
    return {(pair.a.point, pair.b.point): pair for pair in pairs}.values()


def _cut_alike(a: Run, b: Run, pair: Pair) -> bool:
    """Return whether both variants divide the model and the batch equally; if not, their stage costs must differ."""
    of_a, of_b = (_variant_fields(run, side.variant, "training") for run, side in ((a, pair.a), (b, pair.b)))
    return not differing(of_a, of_b)


def _unfinished(a: Run, b: Run) -> list[Difference]:
    if a.complete and b.complete:
        return []
    of_a, of_b = ("yes" if run.complete else f"no, {count_text(len(run.trials), 'trial')} finished" for run in (a, b))
    unfinished = a if not a.complete else b
    command = "simulate" if unfinished.simulated else "run"
    return [Difference(COMPLETE, of_a, of_b, remedy=f"continue it with wanbed {command} FILE --resume")]


def _calibration(a: Run, b: Run, pair: Pair) -> list[Difference]:
    of_a, of_b = _calibration_text(a, pair.a.point), _calibration_text(b, pair.b.point)
    if not (of_a or of_b):
        return []
    remedy = "wanbed calibrate FILE shows what the machine achieves; run the experiment again on a quiet machine"
    inside = "within tolerance"
    return [Difference(CALIBRATION, of_a or inside, of_b or inside, pair.point_text, remedy)]


def _calibration_text(run: Run, point: int) -> str:
    """Return how a sweep point's links failed calibration, "" if they did not; a simulation's links never fail."""
    around = (WaysAround.of(trial.facts) for trial in run.trials if trial.point == point)
    if (used := next((ways for ways in around if ways.used), None)) is not None:
        return used.sentence
    if run.simulated or point in run.calibrated_points:
        return ""
    rows = run.calibration[run.calibration["sweep_point"] == point]
    failed = rows[~rows["within_tolerance"].astype(bool)]
    if failed.empty:
        return "not measured"
    paths = [f"{row.source} to {row.destination}" for row in failed.head(3).itertuples()]
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"outside tolerance: {', '.join(paths)}{more}"


def _over_links(found: list[Difference]) -> list[Difference]:
    """Move the ends of the link from fields like ``topology.wan.latency.east-west`` to ``where``."""
    return [_without_ends(each) if each.field.startswith("topology.wan.") else each for each in found]


def _without_ends(difference: Difference) -> Difference:
    *steps, ends = difference.field.split(".", 3)
    where = ", ".join(filter(None, (difference.where, ends)))
    return Difference(".".join(steps), difference.a, difference.b, where)


def _gathered(found: list[Difference]) -> list[Difference]:
    """Merge equal differences at several places into one whose ``where`` names all places."""
    places: dict[Difference, list[str]] = {}
    for each in found:
        places.setdefault(Difference(each.field, each.a, each.b, "", each.remedy), []).append(each.where)
    return [
        Difference(each.field, each.a, each.b, "; ".join(dict.fromkeys(filter(None, where))), each.remedy)
        for each, where in places.items()
    ]


def under_test(a: Run, b: Run, pairs: Iterable[Pair]) -> list[Difference]:
    """Return how paired variants differ. The comparison is about these differences, so they do not forbid it."""
    found = []
    for pair in pairs:
        of_a, of_b = _variant_fields(a, pair.a.variant), _variant_fields(b, pair.b.variant)
        found += differing(of_a, of_b, pair.variant_text)
    return _gathered(found)


def _variant_fields(run: Run, variant: str, section: str = "") -> dict[str, Any]:
    listed = (run.manifest.get("experiment") or {}).get("variants") or run.manifest.get("variants") or ()
    described: Mapping[str, Any] = next((each for each in listed if each.get("name") == variant), {})
    fields = dict(flattened({name: value for name, value in described.items() if name != "name"}))
    return {field: value for field, value in fields.items() if not section or is_below(field, section)}


ABSENT = "(absent)"

_DERIVED = (
    "run_id",
    "created",
    "ended",
    "config_hash",
    "complete",
    "load_average",
    "sweep_points",
    "qdiscs",
    "wan_delay_trim_ns",
    "calibration",
    "capacity_bps",
)
"""Sections that differ between any two runs, or follow from other sections."""


@dataclass(frozen=True)
class ManifestDifference:
    """One field in which the runs differ. ``values`` has one JSON text per run, ``ABSENT`` if a run lacks the field.

    ``derived`` marks a field that differs between any two runs or follows from others.
    """

    path: str
    values: tuple[str, ...]
    derived: bool


def manifest_differences(manifests: Sequence[Mapping[str, Any]]) -> list[ManifestDifference]:
    """Return the fields in which the manifests are not all equal, in the manifests' order."""
    fields = [
        {path: json.dumps(value, ensure_ascii=False, default=str) for path, value in flattened(manifest, named=True)}
        for manifest in manifests
    ]
    paths = dict.fromkeys(path for each in fields for path in each)
    return [
        ManifestDifference(path, values, path.partition(".")[0] in _DERIVED)
        for path in paths
        if len(set(values := tuple(each.get(path, ABSENT) for each in fields))) > 1
    ]


@dataclass(frozen=True)
class ReportedDifferences:
    """The differences as a report groups them.

    ``of_emulation`` are the fields that no simulation has and that are equal in all emulations. ``derived`` are the
    derived ones, ``deciding`` all others.
    """

    deciding: tuple[ManifestDifference, ...]
    of_emulation: tuple[ManifestDifference, ...]
    derived: tuple[ManifestDifference, ...]


def reported_differences(runs: Sequence[Run]) -> ReportedDifferences:
    """Return the ``manifest_differences`` of these runs in groups."""
    found = manifest_differences([run.manifest for run in runs])
    derived = tuple(each for each in found if each.derived)
    rest = [each for each in found if not each.derived]
    simulated = [run.simulated for run in runs]
    of_emulation = tuple(each for each in rest if _of_emulation(each, simulated))
    return ReportedDifferences(tuple(each for each in rest if each not in of_emulation), of_emulation, derived)


def _of_emulation(difference: ManifestDifference, simulated: Sequence[bool]) -> bool:
    emulated = {value for value, by_simulator in zip(difference.values, simulated, strict=True) if not by_simulator}
    absent = [value == ABSENT for value in difference.values]
    return absent == list(simulated) and len(emulated) == 1


def incomparable(runs: Sequence[Run]) -> list[str]:
    """Return the top-level fields whose differences from the first run forbid a comparison; empty if none."""
    first = runs[0]
    others = [run for run in runs[1:] if run.path.resolve() != first.path.resolve()]
    found = [each for other in others for each in differences(first, other, pair_runs(first, other).pairs)]
    return list(dict.fromkeys(each.field.partition(".")[0] for each in found))


def overlay_warnings(runs: Mapping[str, Run]) -> list[str]:
    """Return the reasons why these runs must not be compared, each one or two sentences; empty if they may be."""
    found = []
    differing = incomparable(list(runs.values()))
    if differing:
        found.append(
            f"The runs differ in {list_text(differing)}: their figures are not comparable. wanbed compare lists all "
            "fields that forbid a comparison of two runs."
        )
    failed = [
        label
        for label, run in runs.items()
        if not run.simulated and {trial.point for trial in run.trials} - run.calibrated_points
    ]
    if failed:
        found.append(
            f"Calibration is missing or failed in {list_text(failed)}: whether the network was as configured is "
            "unknown, and the figures must not be compared with others."
        )
    return found


_COMMANDS = ("command", "setup")

_COURSE, _TRACES = "course", "traces"


def flattened(document: Any, *, named: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield every single value of a JSON document with its dotted path, as used in overrides of an experiment file.

    Entries of a list are numbered from 0. With ``named``, entries that have a name use it instead, and a list of plain
    values is one value. A command of a user's program is one value, as ``command_text`` writes it; so are the course of
    a link that changes and the text of a trace, which may be long, as ``course_text`` and ``trace_text`` write them.
    """
    return _below(document, "", named)


def command_text(words: list[str]) -> str:
    """Return the words of a command as one would type them."""
    return shlex.join(words)


def course_text(course: Mapping[str, Any]) -> str:
    """Return the course of a link in one line: its source, how much it changes, and the begin of its digest."""
    drawn = ", synthetic" if course.get("synthetic") else ""
    period_ns = course.get("period_ns")
    loop = f", begins anew every {period_ns / 1e9:g} s" if period_ns else ""
    return (
        f"{course.get('source')} ({course.get('changes')} changes{drawn}{loop}, SHA-256 {course.get('sha256')!s:.12})"
    )


def trace_text(text: str) -> str:
    """Return a trace in one line: how long it is, and the begin of its digest."""
    return f"{len(text.splitlines())} lines, SHA-256 {sha256(text.encode()).hexdigest():.12}"


def is_command(name: str, value: Any) -> bool:
    """Return whether a field of this name and value is a command of a user's program."""
    words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
    return name in _COMMANDS and words and bool(value)


def _below(document: Any, path: str, named: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Mapping) and document:
        children = [(str(name), value) for name, value in document.items()]
    elif isinstance(document, (list, tuple)) and document and not (named and _plain(document)):
        children = [(_entry(position, value, named), value) for position, value in enumerate(document)]
    else:
        yield path, document
        return
    for step, value in children:
        if step == _COURSE and isinstance(value, Mapping):
            yield f"{path}.{step}" if path else step, course_text(value)
            continue
        if path.rpartition(".")[2] == _TRACES and isinstance(value, str):
            yield f"{path}.{step}", trace_text(value)
            continue
        if is_command(step, value):
            yield f"{path}.{step}" if path else step, command_text(value)
            continue
        yield from _below(value, f"{path}.{step}" if path else step, named)


def _plain(values: Any) -> bool:
    return not any(isinstance(value, (Mapping, list, tuple)) for value in values)


def _entry(position: int, value: Any, named: bool) -> str:
    return str(value.get("name", position)) if named and isinstance(value, Mapping) else str(position)
