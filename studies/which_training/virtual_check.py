"""Check settings of the map in virtual time beside the simulation, and write a table of both.

Settings are shrunk to a 64th of every size and rate, with the same times, so that little is to be sent.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from studies.which_training.grid import Grid
from studies.which_training.setting import MODEL, Method, TriedSetting, Wan, candidates, topology
from wanbed.ground.files import write_whole
from wanbed.ground.units import parse_bytes_per_s, parse_rate_bps, parse_size_bytes
from wanbed.module_process import module_command
from wanbed.results import load
from wanbed.results.metrics import iteration_windows
from wanbed.results.reading.known_misses import known_misses_of
from wanbed.results.reading.run import Run
from wanbed.results.text import count_text, list_text, seconds_text, table_line
from wanbed.runner.cli.exit_status import fail
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.faults import NO_DATA
from wanbed.runner.runs.run_folder import latest_run
from wanbed.workloads.profiles.catalogue import load_profile

EIGHTH = 8

SHRINK = EIGHTH**2
"""By how much sizes and rates are divided. Weights go with the square of the hidden size, activations with context x
hidden: an eighth of each dimension of the model, the vocabulary included, makes a 64th of both."""

FLOPS_SHRINK = SHRINK * EIGHTH
"""By how much fewer operations a sequence takes, with an eighth of the tokens: the GPU is as much slower."""

SEQUENCES = 48

SYNC_EVERY, DELAY = 10, 1

PROFILE = "a100"


@dataclass(frozen=True)
class VirtualCheck:
    """The chosen settings of methods of one kind at one WAN, in one experiment: they train for as many iterations."""

    wan: Wan
    synchronous: bool
    chosen: tuple[TriedSetting, ...]

    @property
    def name(self) -> str:
        """A name for its file and its runs."""
        kind = "synchronous" if self.synchronous else "local"
        return f"which-training-check-{self.wan.latency_ms}ms-{self.wan.rate_gbps_text}gbit-{kind}"

    @property
    def iterations(self) -> int:
        """The number of iterations that are trained, the first of which is not counted."""
        return 3 if self.synchronous else 1 + SYNC_EVERY

    def document(self, profile: str) -> dict[str, Any]:
        """Return the experiment for both engines; ``profile`` is the path of the shrunk profile."""
        return {
            "name": self.name,
            "clock": "virtual",
            "topology": _shrunk_topology(self.wan),
            "model": {**MODEL, **{name: MODEL[name] // EIGHTH for name in ("hidden", "context", "vocabulary")}},
            "compute": {"profile": profile},
            "training": {"iterations": self.iterations, "warmup": 1},
            "variants": [{"name": each.method.value, **shrunk_variant(each.variant)} for each in self.chosen],
        }


def checks(chosen: Sequence[TriedSetting]) -> list[VirtualCheck]:
    """Return the experiments that check these settings."""
    groups: dict[tuple[Wan, bool], list[TriedSetting]] = {}
    for each in chosen:
        groups.setdefault((each.wan, each.method.synchronous), []).append(each)
    return [VirtualCheck(wan, synchronous, tuple(group)) for (wan, synchronous), group in groups.items()]


def shrunk_profile() -> str:
    """Return the map's compute profile as a file of one whose GPU is slower, as the model is smaller."""
    document = load_profile(PROFILE).model_dump(mode="json")
    document["title"] += f", slowed for a model of a {SHRINK}th"
    document["peak_flops_per_s"] /= FLOPS_SHRINK
    document["memory_bandwidth_bytes_per_s"] /= SHRINK
    return json.dumps(document, indent=1) + "\n"


def shrunk_variant(variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variant with fewer sequences, a shorter period, and a 64th of its windows, buckets and swap rate."""
    training, transport = variant["training"], dict(variant["transport"])
    for name in ("window", "bucket"):
        if name in transport:
            transport[name] = f"{parse_size_bytes(transport[name]) // SHRINK}B"
    options = dict(variant.get("options", {}))
    if "sync_every" in options:
        options["sync_every"] = SYNC_EVERY
    if "delay" in options:
        options["delay"] = DELAY
    if "swap" in options:
        options["swap"] = _shrunk_swap(options["swap"])
    return {
        **variant,
        "training": {**training, "microbatches": SEQUENCES // training["pipelines"]},
        "transport": transport,
        **({"options": options} if options else {}),
    }


def _shrunk_swap(written: str) -> str:
    return f"{parse_bytes_per_s(written) // SHRINK}B/s"


def _shrunk_topology(wan: Wan) -> dict[str, Any]:
    full = topology(wan)
    conditions = {name: _shrunk_rate(text) if "rate" in name else text for name, text in full["wan"].items()}
    return {**full, "intra": {"rate": _shrunk_rate(full["intra"]["rate"])}, "wan": conditions}


def _shrunk_rate(written: str) -> str:
    rate_bps = parse_rate_bps(written)
    assert rate_bps is not None
    return f"{rate_bps // SHRINK}bit"


CHECKED = (Wan(10, 1_000_000_000),)
"""The WANs whose chosen settings are checked."""

_PROFILE = "a100-shrunk.json"

_SIMULATE, _EMULATE = "simulate", "emulate"


@dataclass(frozen=True)
class Checked:
    """The iteration time of one setting, in virtual time and simulated, and the kinds of misses it is marked with.

    ``known_misses`` are named as ``docs/known-misses.md`` names them.
    """

    wan: Wan
    method: Method
    label: str
    measured_s: float
    simulated_s: float
    known_misses: tuple[str, ...]

    @property
    def miss(self) -> float:
        """Simulated over measured, minus 1."""
        return self.simulated_s / self.measured_s - 1


def chosen_at(grid: Grid, wans: Iterable[Wan]) -> list[TriedSetting]:
    """Return the setting that was chosen for each method at each of these WANs."""
    return [
        next(each for each in candidates(method, wan) if each.label == grid.price(wan, method).label)
        for wan in wans
        for method in Method
    ]


def checked(grid: Grid, runs: Path, log: Callable[[str], None]) -> list[Checked]:
    """Check the chosen settings at ``CHECKED``, below ``runs``. What was finished before is not run again.

    End the process with one line if a run fails.
    """
    runs.mkdir(parents=True, exist_ok=True)
    write_whole(runs / _PROFILE, shrunk_profile())
    return [found for check in checks(chosen_at(grid, CHECKED)) for found in _compared(check, runs, log)]


def _compared(check: VirtualCheck, runs: Path, log: Callable[[str], None]) -> list[Checked]:
    simulated, measured = (_run(check, engine, runs, log) for engine in (_SIMULATE, _EMULATE))
    marks = _marks(simulated)
    simulated_s, measured_s = (mean_iterations_s(run, check.iterations) for run in (simulated, measured))
    return [
        Checked(
            check.wan,
            each.method,
            each.label,
            measured_s[each.method.value],
            simulated_s[each.method.value],
            marks.get(each.method.value, ()),
        )
        for each in check.chosen
    ]


def mean_iterations_s(run: Run, iterations: int) -> dict[str, float]:
    """Return by variant the mean seconds of an iteration, from the end of the first to the end of the last.

    Raise ValueError for a variant that lacks an iteration.
    """
    found: dict[str, float] = {}
    by_variant: Any = run.spans.groupby("variant", observed=True)
    for variant, spans in by_variant:
        ends_ns = iteration_windows(spans)["end_ns"]
        if len(ends_ns) != iterations:
            raise ValueError(f"{run.path}: {variant} has {len(ends_ns)} of {iterations} iterations")
        found[str(variant)] = (ends_ns.iloc[-1] - ends_ns.iloc[0]) / (iterations - 1) / 1e9
    return found


def _marks(run: Run) -> dict[str, tuple[str, ...]]:
    return {trial.variant: tuple(miss.name for miss in known_misses_of(trial.facts)) for trial in run.trials}


def _run(check: VirtualCheck, engine: str, runs: Path, log: Callable[[str], None]) -> Run:
    file = runs / f"{check.name}-{engine}.yaml"
    document = {**check.document(f"./{_PROFILE}"), "name": file.stem, "engine": engine}
    write_whole(file, yaml.safe_dump(document, sort_keys=False))
    experiment = load_experiment(file, [])
    store = latest_run(experiment, runs)
    if store is None or not store.manifest["complete"]:
        log(f"checked: {file.stem}")
        command = module_command("wanbed", "simulate" if engine == _SIMULATE else "run", str(file), "--runs", str(runs))
        resume = [] if store is None else ["--resume"]
        ended = subprocess.run([*command, *resume], check=False, env=os.environ, stdout=subprocess.DEVNULL)
        store = latest_run(experiment, runs)
        if store is None or not store.manifest["complete"]:
            fail(f"{file.stem}: wanbed ended with status {ended.returncode}: see its lines above", NO_DATA)
    return load(store.path)


_AGREES = 0.05
"""The error that the simulator may have where no miss is known."""


def check_text(found: Sequence[Checked]) -> str:
    """Return the table, and a line that says how many settings agree."""
    within = sum(abs(each.miss) <= _AGREES for each in found)
    worst = max(found, key=lambda each: abs(each.miss))
    middle = median(abs(each.miss) for each in found)
    lines = [
        table_line(["one-way latency, rate", "method", "virtual time", "simulated", "off by", "known kinds of misses"]),
        table_line(["---"] * 6),
        *(table_line(_cells(each)) for each in found),
    ]
    return "\n".join(lines) + (
        f"\n\nOf {count_text(len(found), 'setting')} {within} agree within {_AGREES:.0%}; the median is off by "
        f"{middle:.1%}, the worst by {worst.miss:+.1%} ({worst.method}, {worst.wan.latency_ms} ms)."
    )


def _cells(each: Checked) -> list[str]:
    return [
        f"{each.wan.latency_ms} ms, {each.wan.rate_gbps_text} Gbit/s",
        f"{each.method}, {each.label}",
        seconds_text(each.measured_s),
        seconds_text(each.simulated_s),
        f"{each.miss:+.1%}",
        list_text(list(each.known_misses)) or "none",
    ]
