"""Tabulate what the GPUs of each stage held at most, where the file gives their memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.results import metrics
from wanbed.results.reading.run import Run
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, place_columns
from wanbed.results.text import size_text

_READING = (
    "A stage holds a microbatch from the start of its forward to the end of its backward, or of its weight part. Bytes "
    "are those of weights, gradients, optimizer and activations of so many, with a tenth more, by the model's "
    "dimensions: they are estimated, not measured."
)


@dataclass(frozen=True)
class HeldRow:
    """A stage of a variant: the most microbatches that a GPU held at once in any repeat, their bytes, and the limit."""

    where: str
    variant: str
    stage: int
    microbatches: int
    held_bytes: int
    memory_bytes: int


def memory_table(own: ReportedRun) -> Table | None:
    """Return the report's table of what stages held; None where the file does not give the memory of GPUs."""
    rows: dict[tuple[str, str, int], HeldRow] = {}
    for each in own.run.rows.values():
        for row in _of_trial(own.run, each):
            key = row.where, row.variant, row.stage
            if key not in rows or rows[key].microbatches < row.microbatches:
                rows[key] = row
    return Table.of("memory", "Memory of GPUs", list(rows.values()), _COLUMNS, _READING)


def _of_trial(run: Run, own: TrialRows) -> Iterator[HeldRow]:
    memory = _memory(run, own)
    if memory is None:
        return
    trial = own.trial
    for stage, parts in metrics.most_held(own.spans_of_part).items():
        held = -(-parts // memory["parts"])
        held_bytes = memory["first_bytes"][stage] + (held - 1) * memory["further_bytes"][stage]
        yield HeldRow(trial.where, trial.variant, stage, held, held_bytes, memory["limit_bytes"])


def _memory(run: Run, own: TrialRows) -> Mapping[str, Any] | None:
    points = run.manifest.get("sweep_points") or ()
    variants = points[own.trial.point].get("variants") if own.trial.point < len(points) else None
    found: Mapping[str, Any] | None = ((variants or {}).get(own.trial.variant) or {}).get("memory")
    return found


_COLUMNS: tuple[Column[HeldRow], ...] = (
    *place_columns(),
    Column("stage", lambda row: str(row.stage)),
    Column("microbatches\nat once", lambda row: str(row.microbatches)),
    Column("memory\nat most", lambda row: size_text(row.held_bytes)),
    Column("of a GPU's", lambda row: size_text(row.memory_bytes)),
)
