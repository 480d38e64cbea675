"""Compare the planned makespan with the measured one, and explain differences.

Both times last from the start of an iteration's first computation to the end of its last one, without all-reduces and
optimizer, which no plan orders. ``plan_causes`` explains a difference as far as a trial's spans or machine load show
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.contention import contended_ns
from wanbed.results.metrics.gpu_time import Gpus
from wanbed.results.metrics.intervals import GroupedIntervals, Numbers, is_among, text_codes
from wanbed.results.reading.trial_rows import TrialRows, chosen_rows
from wanbed.results.reading.validity import MachineLoad
from wanbed.results.records.span_log import ACTIVATION, COMPUTE_KINDS, GRADIENT, JOINT_KINDS
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, place_columns
from wanbed.results.text import count_text, percent_text, ratio_text, seconds_text

TOLERANCE = 0.05
"""The share of the planned time by which an outcome may differ without an explanation."""


@dataclass(frozen=True)
class PlanOutcome:
    """One trial of a planned schedule. ``by_rates_s`` is the planned time without TCP's ramp, None if unknown.

    ``outcome_s`` is the median of the measured iterations. ``causes`` is empty if it is within ``TOLERANCE``.
    """

    where: str
    variant: str
    repeat: int
    planned_s: float
    by_rates_s: float | None
    outcome_s: float
    causes: tuple[str, ...]

    @property
    def difference(self) -> float:
        """The difference as a share of the planned time: above 0 if the outcome took longer."""
        return self.outcome_s / self.planned_s - 1


def plan_outcomes(own: ReportedRun) -> list[PlanOutcome]:
    """Return the outcome of each trial with a plan and a measured iteration, in the order of the run's trials."""
    found = (_of_trial(rows) for rows in own.run.rows.values() if rows.trial.facts.get("planned_makespan_s"))
    return [outcome for outcome in found if outcome is not None]


def plan_table(own: ReportedRun) -> Table | None:
    """Return the report's table; None if nothing was planned."""
    return Table.of("plans", "Plan against outcome", own.once(plan_outcomes), _COLUMNS, _READING, record=_record)


def _record(outcome: PlanOutcome) -> dict[str, Any]:
    return {**asdict(outcome), "difference": outcome.difference}


_COLUMNS: tuple[Column[PlanOutcome], ...] = (
    *place_columns(),
    Column("plan by rates alone", lambda outcome: seconds_text(outcome.by_rates_s)),
    Column("plan", lambda outcome: seconds_text(outcome.planned_s)),
    Column("outcome", lambda outcome: seconds_text(outcome.outcome_s)),
    Column("difference", lambda outcome: f"{100 * outcome.difference:+.1f} %"),
    Column("cause", lambda outcome: "; ".join(outcome.causes)),
)

_READING = (
    "Times are makespans, from an iteration's first computation to the end of its last one; the outcome is the median "
    "of the measured iterations. The plan is longer than by rates alone because of TCP, whose windows open slowly at "
    f"the start and after pauses. A difference above {percent_text(TOLERANCE)} is explained from the spans."
)


def plan_warnings(own: ReportedRun) -> list[str]:
    """Return a warning if any outcome is not as planned; empty if all are."""
    outcomes = own.once(plan_outcomes)
    differing = [outcome for outcome in outcomes if outcome.causes]
    if not differing:
        return []
    worst = max(differing, key=lambda outcome: abs(outcome.difference))
    at = f" at {worst.where}" if worst.where else ""
    return [
        f"{count_text(len(differing), 'trial')} of {len(outcomes)} with a plan deviated from it by more than "
        f"{percent_text(TOLERANCE)}, worst {worst.variant}{at}: "
        f"{seconds_text(worst.outcome_s)} where {seconds_text(worst.planned_s)} were planned: "
        f"{'; '.join(worst.causes)}."
    ]


def _of_trial(own: TrialRows) -> PlanOutcome | None:
    trial = own.trial
    planned_s = float(trial.facts["planned_makespan_s"])
    part = own.spans_of_part
    spans = chosen_rows(part, (part["iteration"] >= trial.warmup_iterations).to_numpy(bool))
    columns = spans[["iteration", "start_ns", "end_ns"]]
    planned_work = columns[is_among(spans["kind"], PLANNED_KINDS)]
    if planned_work.empty:
        return None
    by_iteration = planned_work.groupby("iteration")
    outcome_s = float((by_iteration["end_ns"].max() - by_iteration["start_ns"].min()).median()) / 1e9
    plan = trial.facts.get("plan") or {}
    differs = abs(outcome_s / planned_s - 1) > TOLERANCE
    return PlanOutcome(
        trial.where,
        trial.variant,
        trial.repeat,
        planned_s,
        plan.get("by_rates_s"),
        outcome_s,
        plan_causes(trial.facts, spans, trial.equal_parts) if differs else (),
    )


PAUSE_NS = 200_000_000
"""The shortest pause after which a connection slow-starts again: Linux's minimum retransmission timeout."""

FORWARD, BACKWARD = "forward", ("backward", "backward_input")
"""The kinds of span that use an activation, and those that use a gradient."""

PLANNED_KINDS = tuple(kind for kind in COMPUTE_KINDS if kind != "optimizer")
"""The kinds of span that a plan orders."""

_COMPUTING_TOLERANCE, _TRANSFER_TOLERANCE = 0.03, 0.1

_SLOW_START = 1.2

_CONTENDED_SHARE, _HELD_SHARE = 0.2, 0.02

_KEY, _ENDS = ("pipeline", "stage", "iteration", "microbatch"), ("start_ns", "end_ns")

_NO_CAUSE = "no cause shows in the spans"


def plan_causes(facts: Mapping[str, Any], spans: pd.DataFrame, equal_parts: int = 1) -> tuple[str, ...]:
    """Return the deviations from its plan that the spans of a trial's measured iterations show; never empty.

    ``spans`` are those of one of so many equal parts. ``facts`` are the trial's; their ``plan`` has the planned times
    that were recorded.
    """
    plan = facts.get("plan") or {}
    of_work = ["pipeline", "stage", "iteration", "start_ns", "end_ns"]
    work = spans[of_work][is_among(spans["kind"], PLANNED_KINDS)]
    transfers = _transfers(spans, int(facts.get("pipelines_per_cell") or 1))
    found = [
        MachineLoad.of(facts).sentence,
        _computing(plan.get("computing_s") or (), work),
        _transferring(plan.get("transfer_s") or (), transfers, equal_parts),
        _held(spans),
    ]
    return tuple(cause for cause in found if cause) or (_NO_CAUSE,)


def _computing(planned_s: Sequence[float], work: pd.DataFrame) -> str:
    """Describe the stage whose compute time deviates most from the plan; "" if none deviates."""
    rounds = work[["pipeline", "iteration"]].drop_duplicates().shape[0]
    busy_s = (work["end_ns"] - work["start_ns"]).groupby(work["stage"]).sum() / 1e9 / rounds
    ratios = {stage: busy_s.get(stage, 0.0) / own_s for stage, own_s in enumerate(planned_s) if own_s}
    if not ratios:
        return ""
    stage = max(ratios, key=lambda stage: abs(ratios[stage] - 1))
    if abs(ratios[stage] - 1) <= _COMPUTING_TOLERANCE:
        return ""
    return f"stage {stage} computes for {ratio_text(ratios[stage])} the planned time"


def _transfers(spans: pd.DataFrame, pipelines_per_cell: int) -> pd.DataFrame:
    """Return every transfer between stages. It takes ``took_ns`` from ``start_ns``, until its last byte has arrived.

    ``cell`` is the number of the DP-cell. ``direction`` is the number of the pair of sending and receiving datacenter,
    -1 for a transfer inside one datacenter.
    """
    (tensors, tensor_names), (homes, _) = text_codes(spans["tensor"]), text_codes(spans["datacenter"])
    of_transfers = np.flatnonzero(is_among(spans["kind"], ("send", "receive")))
    sending = is_among(spans["kind"], ("send",))[of_transfers]
    columns = {name: spans[name].to_numpy()[of_transfers] for name in (*_KEY, *_ENDS)}
    columns |= {"home": homes[of_transfers], "tensor": tensors[of_transfers]}
    activation = columns["tensor"] == (tensor_names.index(ACTIVATION) if ACTIVATION in tensor_names else -1)
    columns["boundary"] = columns.pop("stage") - np.where(sending == activation, 0, 1)
    columns["key"] = _keys([columns[name] for name in ("pipeline", "boundary", "tensor", "iteration", "microbatch")])
    of_sent = ("key", "home", *_ENDS, "pipeline", "boundary", "tensor")
    sent = pd.DataFrame({name: columns[name][sending] for name in of_sent})
    received = pd.DataFrame({name: columns[name][~sending] for name in ("key", "home", "end_ns")})
    joined = sent.merge(received, on="key", suffixes=("", "_received"))
    crossing = (joined["home"] != joined["home_received"]).to_numpy(bool)
    direction = (joined["home"] * (int(homes.max(initial=0)) + 1) + joined["home_received"]).to_numpy(np.int64)
    return joined.assign(
        took_ns=joined["end_ns_received"] - joined["start_ns"],
        cell=joined["pipeline"] // pipelines_per_cell,
        direction=np.where(crossing, direction, -1),
    )


def _keys(columns: Sequence[Numbers]) -> Numbers:
    """Return one number for each row, which rows share that are equal in all columns."""
    keys = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        least = int(column.min(initial=0))
        keys = keys * (int(column.max(initial=0)) - least + 1) + (column - least)
    return keys


def _transferring(planned_s: Sequence[float], transfers: pd.DataFrame, equal_parts: int) -> str:
    """Describe the boundary whose transfer time deviates most from the plan; "" if none deviates."""
    mean_s = transfers["took_ns"].groupby(transfers["boundary"]).mean() / 1e9
    off = {
        boundary: mean_s[boundary] - own_s
        for boundary, own_s in enumerate(planned_s)
        if boundary in mean_s.index and abs(mean_s[boundary] - own_s) > _TRANSFER_TOLERANCE * own_s
    }
    if not off:
        return ""
    boundary = max(off, key=lambda boundary: abs(off[boundary]))
    text = (
        f"transfers between stages {boundary} and {boundary + 1} take {seconds_text(mean_s[boundary])} on average "
        f"where {seconds_text(planned_s[boundary])} were planned"
    )
    own = transfers[(transfers["boundary"] == boundary).to_numpy(bool)]
    return text + (_why_slower(own, transfers, equal_parts) if off[boundary] > 0 else "")


def _why_slower(own: pd.DataFrame, transfers: pd.DataFrame, equal_parts: int) -> str:
    """Describe slow start and contention of the transfers over one boundary, as far as the spans show them."""
    ordered = own.sort_values(["cell", "tensor", "start_ns"])
    links = ordered.groupby(["cell", "tensor"], sort=False)
    before_ns = links["end_ns"].cummax().groupby([ordered["cell"], ordered["tensor"]], sort=False).shift()
    paused = (ordered["start_ns"] - before_ns > PAUSE_NS).to_numpy(bool)
    text = ""
    if paused.any() and not paused.all():
        after_s, else_s = (float(ordered["took_ns"][which].mean()) / 1e9 for which in (paused, ~paused))
        if after_s > _SLOW_START * else_s:
            text = (
                f" (slow start: {seconds_text(after_s)} after a pause of more than {seconds_text(PAUSE_NS / 1e9)}, "
                f"{seconds_text(else_s)} otherwise)"
            )
    across = transfers[(transfers["direction"] >= 0).to_numpy(bool)]
    if equal_parts > 1:
        # In every other part a DP-cell sends the same at the same time.
        beside = across["took_ns"].reindex(own.index).fillna(0).sum()
    else:
        columns = (across[name].to_numpy(np.int64) for name in ("direction", "cell", "start_ns", "end_ns_received"))
        beside = pd.Series(contended_ns(*columns), index=across.index).reindex(own.index).fillna(0).sum()
    share = float(beside / own["took_ns"].sum())
    if share > _CONTENDED_SHARE:
        text += f" (contention: during {percent_text(share)} of that, other DP-cells sent between the same datacenters)"
    return text


def _held(spans: pd.DataFrame) -> str:
    """Describe how long GPUs were idle although a message had arrived, since its turn in the plan had not come."""
    gpus, kinds = Gpus.of(spans), spans["kind"]
    key = _keys([spans[name].to_numpy(np.int64) for name in _KEY])
    columns = {"key": key, "number": gpus.of_span} | {name: spans[name].to_numpy(np.int64) for name in _ENDS}

    def chosen(flags: npt.NDArray[np.bool_], *names: str) -> pd.DataFrame:
        return pd.DataFrame({name: columns[name][flags] for name in names})

    waiting = []
    receiving = is_among(kinds, ("receive",))
    for tensor, users in ((ACTIVATION, (FORWARD,)), (GRADIENT, BACKWARD)):
        received = chosen(receiving & is_among(spans["tensor"], (tensor,)), "key", "number", "end_ns")
        used = chosen(is_among(kinds, users), "key", "start_ns")
        arrived = received.merge(used, on="key")
        arrived = arrived[(arrived["start_ns"] > arrived["end_ns"]).to_numpy(bool)]
        waiting.append([arrived[name].to_numpy(np.int64) for name in ("number", "end_ns", "start_ns")])
    busy = chosen(is_among(kinds, (*COMPUTE_KINDS, *JOINT_KINDS)), "number", *_ENDS)
    computing = [busy[name].to_numpy(np.int64) for name in ("number", "start_ns", "end_ns")]
    either = [np.concatenate(columns) for columns in zip(computing, *waiting, strict=True)]
    count = len(gpus.index)
    held_ns = _covered_ns(either, count) - _covered_ns(computing, count)
    share = held_ns / (int(spans["end_ns"].max() - spans["start_ns"].min()) * count)
    if share <= _HELD_SHARE:
        return ""
    idle = f"GPUs were idle for {percent_text(share)} of the time although a message had arrived"
    return f"strict order: {idle}, since its turn in the plan had not come"


def _covered_ns(columns: Sequence[Numbers], groups: int) -> int:
    return int(GroupedIntervals.of(*columns).covered(groups).sum())
