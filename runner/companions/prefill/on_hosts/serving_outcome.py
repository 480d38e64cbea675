"""Gather the records of a prefill service's processes, converted to the experiment's time."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.runner.companions.prefill.on_hosts.serving_configs import ServingConfigs
from wanbed.runner.companions.prefill.record import prefill_facts, prefill_rows
from wanbed.runner.emulation.time_line import moved_log
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.rack.driver.time_line import TimeLine
from wanbed.workloads.prefill.control.outcome import Outcome, Reason, RequestRecord
from wanbed.workloads.prefill.service_config import ServiceConfig

_TIMES = [field.name for field in fields(RequestRecord) if field.name.endswith("_ns")]


@dataclass(frozen=True)
class ServingOutcome:
    """The prefill part of a trial's record, without spans. ``facts["faults"]`` has one line per fault."""

    requests: list[PrefillRequest]
    facts: dict[str, Any]


def gather(
    service: ServiceConfig,
    configs: ServingConfigs,
    dilation: float,
    faults: Sequence[str],
    line: TimeLine | None = None,
) -> ServingOutcome:
    """Read the records and counts of all processes. Files that a failed process did not write are reported as faults.

    Where hosts are on several machines, ``line`` puts the times of each controller on the driver's clock.

    In addition to the facts of both engines there are ``kv_bytes``, the bytes that decode hosts received, and
    ``latest_arrival_ns``, the largest delay with which a request was issued. If torch computes there are also
    ``profile``, the profile used for planning, and ``tokens``, the output tokens of each decoded request.
    """
    found = list(faults)
    records: list[RequestRecord] = []
    output_tokens: dict[int, int] = {}
    latest_ns = 0
    controllers = {each.name: each.controller_host for each in service.datacenters}
    for datacenter, path in configs.records.items():
        left, host = _read(path), controllers[datacenter]
        if left is None:
            found.append(f"the prefill controller of {datacenter} left no records: its requests are not counted")
            continue
        latest_ns = max(latest_ns, left["latest_arrival_ns"])
        for row in left["requests"]:
            output_tokens[row["number"]] = row.pop("output_tokens")
            on_line = row if line is None else {**row, **_moved(row, host, line)}
            records.append(_undilated(on_line, dilation))
    counts = []
    for gpu, path in configs.counts.items():
        left = _read(path)
        if left is None:
            found.append(f"the prefill worker of GPU {gpu} left no counts")
            continue
        counts.append(left)
        if left["fault"]:
            found.append(f"the prefill worker of GPU {gpu} ended early: {left['fault']}")
    margins_ns = [left["margins_ns"][-1] for left in counts if left["margins_ns"] and left["gpu"] in configs.gpus]
    decoded = [left for path in configs.decode_counts.values() if (left := _read(path)) is not None]
    facts = prefill_facts(
        service,
        records,
        deadline_overruns=sum(left["deadline_overruns"] for left in counts),
        overrun_ns=undilated_ns(sum(left["overrun_ns"] for left in counts), dilation),
        margins_ns=[undilated_ns(margin_ns, dilation) for margin_ns in margins_ns],
    )
    measured: dict[str, Any] = {
        "kv_bytes": sum(left["kv_bytes"] for left in decoded),
        "latest_arrival_ns": undilated_ns(latest_ns, dilation),
        "faults": found,
    }
    if service.inference is not None:
        measured["profile"] = asdict(service.profile)
        measured["tokens"] = {request: tokens for left in decoded for request, tokens in left["tokens"].items()}
    return ServingOutcome(prefill_rows(service, records, output_tokens), {**facts, **measured})


def pool_logs(configs: ServingConfigs, line: TimeLine | None) -> list[SpanLogContents]:
    """Return the logs that the pool's GPUs have left, by the driver's clock."""
    logs = [read_span_log(path) for path in configs.pool_span_logs.values() if path.exists()]
    return logs if line is None else [moved_log(log, line) for log in logs]


def _moved(row: dict[str, Any], host: str, line: TimeLine) -> dict[str, int]:
    return {name: line.trial_ns(host, row[name]) for name in _TIMES if row[name] is not None}


def _undilated(row: dict[str, Any], dilation: float) -> RequestRecord:
    times = {name: undilated_ns(row[name], dilation) for name in _TIMES if row[name] is not None}
    reason = None if row["reason"] is None else Reason(row["reason"])
    return RequestRecord(**{**row, **times, "outcome": Outcome(row["outcome"]), "reason": reason})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
