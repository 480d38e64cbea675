"""Build the report's table of devices that really computed: their use according to spans and to cross-checks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import DeviceContention, Window
from wanbed.results.reading.run import Run
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, place_columns, trial_columns
from wanbed.results.text import (
    UNKNOWN,
    clock_text,
    held_down_text,
    percent_text,
    rate_text,
    ratio_text,
    size_text,
)

CPU = "cpu"


@dataclass(frozen=True)
class NvmlReadings:
    """NVML's samples of a device in a window; None without any.

    ``nvml_utilization`` is their mean, a fraction, ``clock_hz`` the median clock of the multiprocessors, ``throttled``
    every reason for which clocks were held down.
    """

    nvml_utilization: float | None
    clock_hz: float | None
    throttled: tuple[str, ...]


@dataclass(frozen=True)
class StagedBytes:
    """The bytes that were staged in a whole trial, and their rates while they were copied, None if none were."""

    to_host_bytes: int
    to_host_bps: float | None
    to_device_bytes: int
    to_device_bps: float | None


@dataclass(frozen=True)
class DeviceRow:
    """One device in one trial, within the measured window unless stated otherwise; None means unknown.

    ``busy`` is the share of the window in which the device computed, a fraction. ``checked_share`` is the compute time
    according to torch.profiler divided by that according to the spans, in the profiled iteration, over all ranks of
    the device. ``deterministic`` is whether torch refused kernels that may give other bits in another run.
    """

    where: str
    variant: str
    repeat: int
    device: str
    model: str
    contention: DeviceContention
    busy: float
    nvml: NvmlReadings
    staged: StagedBytes
    checked_share: float | None
    deterministic: bool

    def record(self) -> dict[str, Any]:
        """Return the row in plain JSON types, with the figures of NVML and of staging beside the others."""
        record: dict[str, Any] = {}
        for name, value in asdict(self).items():
            record |= value if name in {"nvml", "staged"} else {name: value}
        return record


def device_rows(run: Run) -> list[DeviceRow]:
    """Return one row per device of each trial in which ranks reported their devices, in the order of the trials."""
    return [row for own in run.rows.values() if own.trial.facts.get("devices") for row in _of_trial(own)]


def _of_trial(own: TrialRows) -> list[DeviceRow]:
    trial, window = own.trial, own.window
    if window is None or not window.length_ns:
        return []
    reported = trial.facts["devices"]
    rows = []
    for contention in metrics.device_contention(own.spans, metrics.devices_of_seats(trial.facts), window):
        ranks = [each for each in reported if each["device"] == contention.device]
        rows.append(
            DeviceRow(
                where=trial.where,
                variant=trial.variant,
                repeat=trial.repeat,
                device=contention.device,
                model=next((str(each["model"]) for each in ranks), contention.device),
                contention=contention,
                busy=contention.busy_ns / window.length_ns,
                nvml=_nvml(own.gpu_samples, contention.device, window),
                staged=_staged(ranks),
                checked_share=_ratio(_sum(ranks, "check_profiler_ns"), _sum(ranks, "check_spans_ns")),
                deterministic=any(each.get("deterministic") for each in ranks),
            )
        )
    return rows


def _staged(ranks: Sequence[Mapping[str, Any]]) -> StagedBytes:
    to_host_bytes, to_device_bytes = _sum(ranks, "to_host_bytes"), _sum(ranks, "to_device_bytes")
    return StagedBytes(
        to_host_bytes,
        _ratio(to_host_bytes * 8e9, _sum(ranks, "to_host_ns")),
        to_device_bytes,
        _ratio(to_device_bytes * 8e9, _sum(ranks, "to_device_ns")),
    )


def _sum(ranks: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(each[name]) for each in ranks)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _nvml(samples: pd.DataFrame, device: str, window: Window) -> NvmlReadings:
    own = samples[(samples["device"] == device) & samples["time_ns"].between(window.start_ns, window.end_ns)]
    utilization, clocks_hz = own["utilization"].dropna(), own["sm_clock_hz"].dropna()
    return NvmlReadings(
        float(utilization.mean()) if len(utilization) else None,
        float(clocks_hz.median()) if len(clocks_hz) else None,
        tuple(sorted({reason for each in own["throttled"] for reason in each.split(", ") if reason})),
    )


def device_table(own: ReportedRun) -> Table | None:
    """Return the table of a run; None if no device really computed."""
    rows = device_rows(own.run)
    mps = any(trial.facts.get("mps") for trial in own.run.trials)
    return Table.of(
        "devices",
        "Devices that really computed",
        rows,
        _columns(rows),
        _reading(rows, mps=mps),
        record=DeviceRow.record,
    )


def _columns(rows: Sequence[DeviceRow]) -> list[Column[DeviceRow]]:
    """Return the columns, without those of which nothing was asked or found in any row."""
    repeats = len({row.repeat for row in rows}) > 1
    sampled, checked = any(row.nvml.nvml_utilization for row in rows), any(row.checked_share for row in rows)
    clocks = any(row.nvml.clock_hz for row in rows)
    staged = any(row.staged.to_host_bytes or row.staged.to_device_bytes for row in rows)
    return [
        *(trial_columns() if repeats else place_columns()),
        Column("device", lambda row: row.model if row.device == CPU else f"{row.model} ({row.device})"),
        Column("ranks on it", lambda row: str(row.contention.seats)),
        Column("busy", lambda row: percent_text(row.busy)),
        Column("contended", lambda row: percent_text(row.contention.contended_share)),
        Column("slowdown", lambda row: ratio_text(row.contention.slowdown)),
        *(
            [Column[DeviceRow]("NVML utilization", lambda row: percent_text(row.nvml.nvml_utilization))]
            if sampled
            else []
        ),
        *([Column("clock", _clock_text)] if clocks else []),
        *(_STAGED if staged else ()),
        *([Column[DeviceRow]("profiler over spans", lambda row: percent_text(row.checked_share))] if checked else []),
    ]


def _clock_text(row: DeviceRow) -> str:
    return clock_text(row.nvml.clock_hz) + held_down_text(row.nvml.throttled)


def _staged_text(size_bytes: int, rate_bps: float | None) -> str:
    return f"{size_text(size_bytes)} at {rate_text(rate_bps)}" if rate_bps else UNKNOWN


_STAGED: tuple[Column[DeviceRow], ...] = (
    Column("staged to host", lambda row: _staged_text(row.staged.to_host_bytes, row.staged.to_host_bps)),
    Column("staged to device", lambda row: _staged_text(row.staged.to_device_bytes, row.staged.to_device_bps)),
)


def _reading(rows: Sequence[DeviceRow], *, mps: bool) -> str:
    sentences = [
        "Busy is the share of the measured time in which any rank computed on the device; it does not show how many of "
        "the device's multiprocessors computed.",
        "Contended is the share of the compute time during which another rank computed on the device too.",
        "Slowdown is the median, over contended spans, of their length divided by that of the same rank's spans of the "
        "same kind that had the device to themselves.",
    ]
    if any(row.device == CPU for row in rows):
        sentences.append("Ranks on the CPU share its cores: they may compute at the same time without any slowdown.")
    if mps:
        sentences.append(
            "CUDA's MPS ran: kernels of ranks that share a GPU ran on it at the same time, not in turns, so that a "
            "contended span is slowed down by others without waiting for them."
        )
    if any(row.deterministic and row.device != CPU for row in rows):
        sentences.append(
            "torch used deterministic kernels only (compute.deterministic). On a GPU they are slower than those with "
            "which models are trained in practice."
        )
    if any(row.nvml.nvml_utilization for row in rows):
        sentences.append(
            "NVML utilization shows that some kernel, even a waiting one, ran in the last sixth of a second to second: "
            "a cross-check that does not show bubbles. No other figure is computed from it."
        )
    if any(row.checked_share for row in rows):
        sentences.append(
            "In one iteration of the warm-up torch.profiler recorded too. The last column is its compute time divided "
            "by that of the spans; the rest is the time between operators or kernels within a span."
        )
    return " ".join(sentences)
