"""Describe a run as text, from its manifest. Any part of the manifest may be absent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbed.results.comparison.differences import command_text, is_command
from wanbed.results.reading.known_misses import known_misses_of, known_misses_text
from wanbed.results.reading.links import changing_links_text
from wanbed.results.reading.not_modelled import (
    NotModelled,
    gathered,
    not_modelled_text,
    of_links,
    planned_without,
    simulated_without,
)
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.reading.validity import (
    MODELLED_TCP,
    SATURATION_REMEDY,
    MachineLoad,
    WaysAround,
    divided_trunks_text,
    tcp_is_modelled,
)
from wanbed.results.records.trial_id import planned_trials
from wanbed.results.text import count_text, list_text, size_text

MAX_VALUES_LISTED = 12
"""The most values of a swept path, and the most sweep points in a warning, that are listed."""

_COUNTED = {"stages": "stage", "pipelines": "pipeline", "microbatches": "microbatch", "iterations": "iteration"}


def _at(document: Any, *path: str) -> Any:
    """Return the value at a path of nested mappings, None if a step is absent."""
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def what_was_run(run: Run) -> str:
    """Describe the run in one or two sentences: the variants, where they ran, and over what sweep."""
    sentences = [
        "Simulated as discrete events: nothing was sent and nothing measured." if run.simulated else "",
        f"Compared: {list_text(list(run.variants))}." if len(run.variants) > 1 else "",
    ]
    datacenters = _at(run.manifest, "experiment", "topology", "datacenters") or []
    names = [f"{each.get('name')} ({count_text(each.get('hosts', 1), 'host')})" for each in datacenters]
    if names:
        sentences.append(f"{count_text(len(names), 'datacenter')}: {list_text(names)}.")
    training = run.manifest.get("training") or {}
    counts = [
        count_text(training[name], singular, name)
        for name, singular in _COUNTED.items()
        if isinstance(training.get(name), int)
    ]
    warmup = run.manifest.get("warmup_iterations")
    programs = _programs(run)
    schedules = [name for name in run.variants if name not in programs]
    sentences += [f"{name} runs a program: {command}." for name, command in programs.items()]
    if counts and schedules:
        unmeasured = f", of which {warmup} to warm up" if warmup else ""
        own = [
            str(variant["name"])
            for variant in _at(run.manifest, "experiment", "variants") or ()
            if any(value is not None for value in (variant.get("training") or {}).values())
        ]
        but = f" {list_text(own)} {'divide' if len(own) > 1 else 'divides'} the training differently." if own else ""
        each = f"Each trial of {list_text(schedules)}" if programs else "Each trial"
        sentences.append(f"{each}: {list_text(counts)}{unmeasured}.{but}")
    if waiting := _waiting(run):
        whose = "" if len(waiting) == len(run.variants) else f" of {list_text(waiting)}"
        sentences.append(f"Optimizer steps{whose} wait for the gradients of all stages, and for their norm.")
    sentences += _accumulation(run)
    swept: dict[str, list[str]] = {}
    for entry in run.manifest.get("sweep_points") or ():
        for path, value in entry.get("sweep_point", {}).items():
            swept.setdefault(path, []).append(value)
    if (changing := changing_links_text(run.manifest)) is not None:
        sentences.append(changing)
    if swept:
        axes = [point_text({path: _values_text(list(dict.fromkeys(values)))}) for path, values in swept.items()]
        sentences.append(f"Swept: {'; '.join(axes)}.")
    return " ".join(filter(None, sentences))


def _waiting(run: Run) -> list[str]:
    """Return the variants whose optimizer steps wait for all stages."""
    common = _at(run.manifest, "experiment", "training", "optimizer_waits")
    variants = _at(run.manifest, "experiment", "variants") or ()
    own = {str(each.get("name")): _at(each, "training", "optimizer_waits") or common for each in variants}
    return [name for name, waits in own.items() if waits == "all stages"]


def _accumulation(run: Run) -> Iterator[str]:
    """Yield a sentence for each number of flushes, beyond one, whose gradients variants add up before a step."""
    flushes: dict[tuple[int, str], dict[str, None]] = {}
    for entry in run.manifest.get("sweep_points") or ():
        for name, resolved in (_at(entry, "variants") or {}).items():
            if (facts := _flushes(resolved)) is not None:
                flushes.setdefault(facts, {})[str(name)] = None
    for (count, summed), names in flushes.items():
        whose = "" if {*names} == {*run.variants} else f" of {list_text(list(names))}"
        sums = "after each of them" if summed == "every flush" else "once"
        yield f"Before an optimizer step{whose} gradients of {count} flushes add up, summed over the replicas {sums}."


def _flushes(resolved: Any) -> tuple[int, str] | None:
    """Return how many flushes there are in an iteration of a variant, and when they are summed, None for one."""
    count = _at(resolved, "accumulate")
    return (count, str(_at(resolved, "summed") or "once")) if isinstance(count, int) else None


def _programs(run: Run) -> dict[str, str]:
    """Return the command of each variant that runs a user's program in place of a schedule."""
    variants = _at(run.manifest, "experiment", "variants") or run.manifest.get("variants") or ()
    commands = {str(each.get("name")): _at(each, "program", "command") for each in variants}
    return {name: command_text(command) for name, command in commands.items() if is_command("command", command)}


def _values_text(values: list[str]) -> str:
    """List a swept path's values; of more than ``MAX_VALUES_LISTED``, only the first ones and the last."""
    if len(values) <= MAX_VALUES_LISTED:
        return ", ".join(values)
    return f"{', '.join(values[: MAX_VALUES_LISTED - 2])}, ... to {values[-1]} ({len(values)} values)"


@dataclass(frozen=True)
class RunDescription:
    """A run as text for a page.

    ``what`` describes it in one or two sentences, ``links`` is about the links of a simulation, which has no
    calibration, and ``facts`` are terms and values.
    """

    what: str
    links: str
    facts: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, run: Run) -> "RunDescription":
        """Describe a run."""
        return cls(what_was_run(run), _links_reading(run), facts(run))


def not_modelled_in(run: Run) -> tuple[NotModelled, ...]:
    """Return the configured settings that the simulations of a run's trials do not model; nothing for an emulation."""
    return gathered(each for point in _points(run) for each in simulated_without(run.manifest, point))


def _points(run: Run) -> list[int]:
    return sorted({trial.point for trial in run.trials})


def _links_reading(run: Run) -> str:
    without = of_links(not_modelled_in(run))
    if without:
        text = not_modelled_text(without)
        return (
            "Nothing was measured, and the links are not as configured: the simulator does not model "
            f"{text}, or not within what was validated."
        )
    return "Nothing was measured: the links are as configured by construction."


def warnings(run: Run) -> list[str]:
    """Return warnings that a reader needs before trusting the figures, each one or two sentences; empty if none."""
    found = []
    expected = len(planned_trials(run.manifest))
    if run.complete and len(run.trials) < expected:
        found.append(
            f"This run was complete, and lacks {count_text(expected - len(run.trials), 'trial')} of {expected}: "
            "something removed from its folder what had finished. Only the others are shown."
        )
    elif not run.complete:
        done = f"{len(run.trials)} of {count_text(expected, 'trial')}" if expected else f"{len(run.trials)} trials"
        found.append(f"This run is incomplete: {done} had finished when its folder was read. Only those are shown.")
    if without := of_links(not_modelled_in(run)):
        found.append(
            f"The simulator does not model {not_modelled_text(without)}, or not within what was validated: an "
            "emulation of the same file may give other figures."
        )
    if text := known_misses_text(miss for trial in run.trials for miss in known_misses_of(trial.facts)):
        marked = sum(bool(known_misses_of(trial.facts)) for trial in run.trials)
        found.append(
            f"{marked} of {count_text(len(run.trials), 'trial')} are of kinds whose simulation is known to be off from "
            f"virtual time: {text}."
        )
    if planned := gathered(each for point in _points(run) for each in planned_without(run.manifest, point)):
        found.append(
            f"The planner, which simulates, placed stages without {not_modelled_text(planned)}: with it another "
            "placement may be better."
        )
    if tcp_is_modelled(run.manifest):
        found.append(MODELLED_TCP)
    if (divided := divided_trunks_text(run.manifest)) is not None:
        found.append(divided)
    points = {trial.point for trial in run.trials}
    measured = points if run.simulated else {int(point) for point in run.calibration["sweep_point"].unique()}
    unmeasured = sorted(points - measured)
    if unmeasured:
        found.append(
            f"The links were not calibrated{_in_points(run, unmeasured)}: whether the network was as configured is "
            "unknown, and the figures must not be compared with others."
        )
    around = [(trial.variant, ways) for trial in run.trials if (ways := WaysAround.of(trial.facts)).used]
    if around:
        variant, ways = around[0]
        found.append(
            f"In {_of_trials(len(around), len(run.trials))}, first with {variant}, {ways.sentence}: the figures are "
            "not of that network, and must not be compared with others."
        )
    loads = [(trial.variant, MachineLoad.of(trial.facts)) for trial in run.trials]
    saturated = [(variant, load) for variant, load in loads if load.saturated]
    if saturated:
        variant, worst = max(saturated, key=lambda each: each[1].worst)
        found.append(
            f"In {_of_trials(len(saturated), len(run.trials))} the machine was overloaded, worst with "
            f"{variant}: {worst.sentence}: {SATURATION_REMEDY}."
        )
    profiles = {str(profile) for trial in run.trials if (profile := trial.facts.get("torch_times_of_profile"))}
    if profiles:
        found.append(
            f"Torch did not run: its times come from the compute profile {list_text(sorted(profiles))}, and may differ "
            "from those of a real machine."
        )
    calibrated = points if run.simulated else run.calibrated_points
    outside = sorted((points & measured) - calibrated)
    if outside:
        found.append(
            f"Calibration found links outside tolerance{_in_points(run, outside)}: the network was not as configured, "
            "and the figures must not be compared with others."
        )
    small = dict.fromkeys(
        str(text) for of_point in (run.manifest.get("small_transfers") or {}).values() for text in of_point
    )
    return [*found, *(f"{text}." for text in small)]


def _of_trials(number: int, of_all: int) -> str:
    return "its only trial" if of_all == 1 else f"{number} of {of_all} trials"


def _in_points(run: Run, points: list[int]) -> str:
    texts = [run.where(point) for point in points[:MAX_VALUES_LISTED]]
    if len(points) > MAX_VALUES_LISTED:
        texts.append(f"{len(points) - MAX_VALUES_LISTED} more")
    return f" at {list_text(texts)}" if all(texts) else ""


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        known = {
            str(key): command_text(inner) if is_command(str(key), inner) else _text(inner)
            for key, inner in value.items()
            if inner is not None
        }
        return ", ".join(text if text.startswith(f"{key} ") else f"{key} {text}" for key, text in known.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(inner) for inner in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def first_point(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the first sweep point's record of this name, read back from its network; it is equal in all points."""
    of_points = manifest.get(name)
    first: Any = next(iter(of_points.values()), {}) if isinstance(of_points, Mapping) else {}
    return first if isinstance(first, Mapping) else {}


def _mtu_text(offloads: Mapping[str, Any]) -> str:
    """Return the MTUs of the interfaces in bytes, each once."""
    mtu = offloads.get("mtu_bytes")
    sizes = sorted({size for size in mtu.values() if isinstance(size, int)}) if isinstance(mtu, Mapping) else [mtu]
    return ", ".join(f"{size} bytes" for size in sizes if isinstance(size, int))


def facts(run: Run) -> list[tuple[str, str]]:
    """Return the manifest's facts that determine what the figures mean, as terms and values, without absent ones."""
    manifest = run.manifest
    sysctls = {
        name.removeprefix("net.ipv4."): value
        for name, value in first_point(manifest, "sysctls").items()
        if not isinstance(value, Mapping)
    }
    host = dict(manifest.get("host") or {})
    if isinstance(host.get("memory_bytes"), int):
        host["memory"] = size_text(host.pop("memory_bytes"))
    substrate = dict(manifest.get("substrate") or {})
    reason = f" ({substrate.pop('reason')})" if substrate.get("reason") else ""
    git = manifest.get("git") or {}
    dirty = ", with uncommitted changes" if git.get("dirty") else ""
    variants = [
        (f"variant {variant.get('name')}", _text({key: value for key, value in variant.items() if key != "name"}))
        for variant in manifest.get("variants") or ()
    ]
    dilation = manifest.get("dilation")
    slowed = f"{dilation} (the run was {dilation} times slower than the network it emulates; all figures are undilated)"
    candidates = [
        ("engine", _text(manifest.get("engine") or "")),
        ("clock", _text(manifest.get("clock") or "")),
        ("virtual time", _text(manifest.get("virtual_time") or "")),
        ("not modelled", not_modelled_text(not_modelled_in(run))),
        ("dilation", slowed if isinstance(dilation, (int, float)) and dilation > 1 else _text(dilation or "")),
        ("substrate", _text(substrate.pop("name", "")) + reason),
        ("substrate details", _text(substrate)),
        ("rights", _text(manifest.get("rights") or "")),
        *variants,
        ("MTU", _mtu_text(first_point(manifest, "offloads"))),
        ("congestion control", _text(sysctls.pop("tcp_congestion_control", ""))),
        ("TCP settings", _text(sysctls)),
        ("tokens per iteration", _text(manifest.get("tokens_per_iteration") or "")),
        ("seed", _text(manifest.get("seed", ""))),
        ("host", _text(host)),
        ("GPUs", _text(manifest.get("gpus") or "")),
        ("measuring programs", _text(manifest.get("programs") or "")),
        ("versions", _text(manifest.get("versions") or {})),
        ("schedules of other packages", _text(manifest.get("foreign_schedules") or "")),
        ("compute of other packages", _text(manifest.get("foreign_compute") or "")),
        ("git revision", f"{git['revision']}{dirty}" if git.get("revision") else ""),
        ("configuration hash", _text(manifest.get("config_hash") or "")),
        ("created", _text(manifest.get("created") or "")),
        ("ended", _text(manifest.get("ended") or "")),
        ("folder", run.path.name),
    ]
    return [(term, value) for term, value in candidates if value]
