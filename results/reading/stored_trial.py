"""Describe a finished trial as it lies in its run's folder, and what failures did to it.

The meanings of the figures of failures are those of the page on faults.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbed.results.reading.cost import TrialPrices
from wanbed.results.records.trial_id import TrialId

LATENCY_PATH = "topology.wan.latency"

RATE_PATH = "prefill.rate"

_PATH_NAMES = {LATENCY_PATH: "WAN latency", RATE_PATH: "request rate"}


def swept_values(manifest: Mapping[str, Any], point: int) -> dict[str, str]:
    """Return the swept path and value pairs of a sweep point, {} where nothing was swept."""
    points = manifest.get("sweep_points", ())
    return dict(points[point]["sweep_point"]) if 0 <= point < len(points) else {}


def path_name(path: str) -> str:
    """Return the name of a swept path for readers."""
    return _PATH_NAMES.get(path, path)


def point_text(values: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> str:
    """Return a sweep point's swept values as text for readers; empty if nothing was swept.

    ``labels`` are names of swept paths that replace the usual ones.
    """
    names = {} if labels is None else labels
    return ", ".join(f"{names.get(path, path_name(path))} {value}" for path, value in values.items())


@dataclass(frozen=True)
class StoredTrial:
    """A finished trial: its identity, its folder, and the contents of its trial.json, ``facts``.

    ``manifest`` is its run's.
    """

    id: TrialId
    folder: Path
    manifest: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def point(self) -> int:
        """Index of its sweep point."""
        return self.id.point

    @property
    def variant(self) -> str:
        """Name of its variant."""
        return self.id.variant

    @property
    def repeat(self) -> int:
        """Number of its repetition, from 0."""
        return self.id.repeat

    @property
    def values(self) -> dict[str, str]:
        """The swept values of its sweep point by path."""
        return swept_values(self.manifest, self.point)

    @property
    def where(self) -> str:
        """The swept values as text for readers; empty if nothing was swept."""
        return point_text(self.values)

    @property
    def program(self) -> Mapping[str, Any] | None:
        """The user's program that ran, as its trial.json describes it; None if a schedule ran."""
        program: Mapping[str, Any] | None = self.facts.get("program")
        return program

    @property
    def bound(self) -> tuple[float, str] | None:
        """The time in seconds below which its iterations cannot come, and the part that decides; None if unknown."""
        bound = self.facts.get("period_bound")
        return None if bound is None else (bound["time_ns"] / 1e9, bound["part"])

    @property
    def makespan_bound_s(self) -> float | None:
        """The time below which no iteration by itself can come; None if unknown."""
        bound = self.facts.get("makespan_bound")
        return None if bound is None else float(bound["time_ns"]) / 1e9

    @property
    def while_all_ran_ns(self) -> int | None:
        """Return when the first of several jobs had done its last iteration: until then they count; None of one job."""
        beside = self.facts.get("beside")
        return None if beside is None else int(beside["until_ns"])

    @property
    def prices(self) -> TrialPrices | None:
        """The prices of what it trained with; None without any.

        Also None of a program, whose set-up sends what is no iteration's, and where a failure cost what an iteration
        does not.
        """
        prices = self.facts.get("prices")
        if prices is None or self.program is not None or TrialFaults.of(self.facts).outcome not in {None, UNDISTURBED}:
            return None
        of_links = {(source, destination): usd for source, destination, usd in prices["egress_usd_per_gb"]}
        return TrialPrices(prices["gpus_usd_per_h"], of_links, prices["iterations"])

    @property
    def faults(self) -> Mapping[str, Any] | None:
        """Return what failed in the trial, and what it did about that; None if nothing was to fail and nothing did."""
        faults: Mapping[str, Any] | None = self.facts.get("faults")
        return faults

    @property
    def equal_parts(self) -> int:
        """Return how many parts its spans are of that have the same times, on hosts of the same datacenters."""
        return int(self.facts.get("equal_parts", 1))

    @property
    def sends_block(self) -> bool:
        """Return whether its GPUs computed nothing while they sent."""
        return bool(self.facts.get("sends_block"))

    @property
    def sync_every(self) -> int | None:
        """In how many iterations everything was synchronised once; None if gradients were summed in each."""
        return None if "synchronization" not in self.facts else int(self.facts["synchronization"]["sync_every"])

    @property
    def activation_wire(self) -> str | None:
        """Return how activations crossed the WAN, as text; None if they went as they are."""
        facts = self.facts.get("activation")
        if facts is None:
            return None
        kept = "" if facts.get("kept_of_1024") is None else f", {facts['kept_of_1024']} of 1024"
        return f"{facts['wire']}{kept}{', fed back' if facts['error_feedback'] else ''}"

    @property
    def has_own_clocks(self) -> bool:
        """Tell whether a quorum of its replicas goes on without the others: each then counts its own iterations."""
        return self.facts.get("synchronization", {}).get("quorum") is not None

    @property
    def sync_delay(self) -> int:
        """Return how many iterations lay between the begin of a synchronisation and its application."""
        return int(self.facts.get("synchronization", {}).get("delay", 0))

    @property
    def profiled_iterations(self) -> int | None:
        """The number of its last iterations that a profiler recorded; None if a schedule ran, which needs none."""
        return None if self.program is None else int(self.facts.get("profiled_iterations") or 0)

    @property
    def all_reduce_wan_ratio(self) -> Sequence[float] | None:
        """By stage the bytes over the WAN for each byte that a replica sums; None if unknown."""
        return self.facts.get("all_reduce_wan_ratio")

    @property
    def warmup_iterations(self) -> int:
        """The number of its first iterations that are warm-up and not measured."""
        return int(self.settings.get("warmup_iterations") or 0)

    @property
    def first_measured_iteration(self) -> int:
        """The number of the first iteration that is measured: the first after warm-up, and one that follows another.

        Of the first of all no period is known, unless ranks state when their iterations begin, as programs do.
        """
        return self.warmup_iterations if self.program is not None else max(self.warmup_iterations, 1)

    @property
    def settings(self) -> dict[str, Any]:
        """The manifest, with what holds for this trial alone in its place."""
        return {**self.manifest, **self.facts}

    @property
    def title(self) -> str:
        """Variant, swept values and repeat, for readers."""
        values = (f"{path} {value}" for path, value in self.values.items())
        return ", ".join((self.variant, *values, f"repeat {self.repeat}"))


UNDISTURBED, SURVIVED, RECOVERED, FAILED = "undisturbed", "survived", "recovered", "failed"


@dataclass(frozen=True)
class TrialFaults:
    """The effects of failures on a trial. A field is None where its value is unknown, or its event never happened.

    ``outcome`` is None for a trial in which no failure was planned and none happened. ``training_goodput`` is the time
    in iterations that count, as a share of the training's time. Of several failures, the times are the longest.
    """

    outcome: str | None = None
    reason: str | None = None
    planned: bool = True
    iterations_completed: int | None = None
    iterations_lost: int | None = None
    training_goodput: float | None = None
    time_to_detect_s: float | None = None
    time_to_recover_s: float | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TrialFaults":
        """Read them from the contents of trial.json."""
        faults = facts.get("faults")
        if faults is None:
            return cls()
        disturbances = faults.get("disturbances") or ()
        return cls(
            faults["outcome"],
            faults.get("reason"),
            faults.get("planned", True),
            faults.get("iterations_completed"),
            faults.get("iterations_lost"),
            faults.get("training_goodput"),
            _longest_s(disturbances, "time_to_detect_ns"),
            _longest_s(disturbances, "time_to_recover_ns"),
        )

    @property
    def failed(self) -> bool:
        """Tell whether the trial ended before its last iteration."""
        return self.outcome == FAILED

    @property
    def failed_unplanned(self) -> bool:
        """Tell whether it did so although the experiment lets nothing fail that explains it."""
        return self.failed and not self.planned


def _longest_s(disturbances: Any, name: str) -> float | None:
    times_ns = [each.get(name) for each in disturbances]
    return max((time_ns / 1e9 for time_ns in times_ns if time_ns is not None), default=None)
