"""Choose one iteration of one trial, and read its spans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wanbed.ground.strict_model import InputError
from wanbed.results.reading.selection import NoSuchTrialError, Selection, choices, finished_trials, swept_points
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.schema import VIRTUAL_STAGE
from wanbed.results.records.span_log import COLLECTIVE_KINDS, COMPUTE_KINDS, ITERATION, NORM
from wanbed.results.records.trial_files import read_trial_table
from wanbed.results.records.trial_tables import SPANS_FILE

EXPORTED_KINDS = (*COMPUTE_KINDS, *COLLECTIVE_KINDS, "send", "receive")
"""The kinds of spans that become nodes. Neither prefill nor what states an iteration is work of training."""


@dataclass(frozen=True, order=True)
class TrialSpan:
    """One span of the iteration. The fields are those of the table of spans; they sort by time."""

    start_ns: int
    end_ns: int
    rank: int
    kind: str
    microbatch: int
    size_bytes: int
    pipeline: int
    stage: int
    host: str
    datacenter: str
    peer: str
    tensor: str


_COLUMNS = [each.name for each in fields(TrialSpan)]


@dataclass(frozen=True)
class TrialIteration:
    """One iteration of one trial. ``is_program`` is whether its ranks were a user's program.

    ``stated_ns`` has the begin and the end of the iteration at each rank that states them, as those of programs do.
    """

    trial: StoredTrial
    iteration: int
    spans: tuple[TrialSpan, ...]
    stated_ns: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        """Whether the ranks were processes of a user's program, which logs when its device was busy."""
        return "program" in self.trial.facts


def chosen_iteration(run: Path, selection: Selection) -> TrialIteration:
    """Return the selected iteration of the only selected trial; by default its first measured one.

    Of a program it is the first one that was profiled. Raise RunError if the run is damaged, NoTrialsError if no trial
    has finished, NoSuchTrialError if there is none such, and InputError if several trials are selected.
    """
    manifest, finished = finished_trials(run)
    trials = selection.of(finished, swept_points(manifest))
    if len(trials) > 1:
        raise InputError(
            f"{run}: --format chakra writes one trial, and {len(trials)} are selected: give {_choice(trials)}"
        )
    (trial,) = trials
    table: Any = read_trial_table(trial.folder, trial.id, SPANS_FILE)
    if VIRTUAL_STAGE in table.column_names:
        raise InputError(
            f"{trial.title}: its stages are divided into virtual stages, which --format chakra does not know: select a "
            "trial without them, or another --format"
        )
    if trial.sync_every is not None:
        raise InputError(
            f"{trial.title}: its replicas synchronise beside several iterations, which --format chakra does not know: "
            "select a trial that sums gradients in each, or another --format"
        )
    if NORM in set(table.column("kind").to_pylist()):
        raise InputError(
            f"{trial.title}: its optimizer steps wait for a gradient norm of all ranks, which --format chakra does not "
            "know: select a trial with optimizer_waits: own, or another --format"
        )
    exported = table.filter(pc.is_in(table.column("kind"), value_set=pa.array(EXPORTED_KINDS)))
    iteration = _iteration(trial, exported, selection.iteration)
    own = table.filter(pc.equal(table.column("iteration"), pa.scalar(iteration)))
    rows = [TrialSpan(**row) for row in own.select(_COLUMNS).to_pylist()]
    spans = sorted(row for row in rows if row.kind in EXPORTED_KINDS)
    stated_ns = {row.rank: (row.start_ns, row.end_ns) for row in rows if row.kind == ITERATION}
    return TrialIteration(trial, iteration, tuple(spans), stated_ns)


def _iteration(trial: StoredTrial, spans: Any, selected: int | None) -> int:
    """Return the selected iteration, or the first measured one; of a program the first one that was profiled."""
    computed = spans.filter(pc.is_in(spans.column("kind"), value_set=pa.array(COMPUTE_KINDS)))
    there = sorted(set(computed.column("iteration").to_pylist()))
    if selected is not None:
        if selected not in there:
            raise NoSuchTrialError(f"--iteration {selected}: there is none such that computes, {choices(there)}")
        return selected
    profiled = int(trial.facts.get("profiled_iterations") or 0)
    first = max(there, default=0) + 1 - profiled if profiled else trial.warmup_iterations
    measured = [iteration for iteration in there if iteration >= first]
    if not measured:
        raise NoSuchTrialError(f"{trial.title}: no measured iteration of it computes, {choices(there)}")
    return int(measured[0])


def _choice(trials: Sequence[StoredTrial]) -> str:
    """Return the options that tell the trials apart, each with what there is to choose."""
    options: dict[str, list[str] | list[int]] = {
        "--variant": [trial.variant for trial in trials],
        "--point": [trial.point for trial in trials],
        "--repeat": [trial.repeat for trial in trials],
    }
    several = {option: values for option, values in options.items() if len(set(values)) > 1}
    return ", ".join(f"{option} ({choices(values)})" for option, values in several.items())
