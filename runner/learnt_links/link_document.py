"""Put a learnt link into figures: a JSON document, and texts for people."""

import json
import math
from pathlib import Path
from typing import Any

from wanbed.ground.files.atomic_write import write_whole
from wanbed.results.text import count_text, percent_text, rate_text, seconds_text, size_text
from wanbed.runner.learnt_links.held_out import TRACE, LearntLink
from wanbed.runner.learnt_links.link_charts import LOG
from wanbed.runner.learnt_links.replay.outcome import QUANTILES, ReplayOutcome


def cautions(learnt: LearntLink) -> list[str]:
    """Return what a reader has to know before using the link."""
    found = []
    if learnt.link.buffer.buffer_bytes is None:
        found.append(
            "No loss at a full queue: the buffer is not known, only that it holds "
            f"{size_text(learnt.link.buffer.largest_backlog_bytes)}. Replays have no limit."
        )
    if not learnt.link.seen.ever_empty:
        found.append(
            f"{count_text(learnt.link.seen.found_empty, 'packet')} found the queue empty. If it was not, the base "
            "delay is less than this one, and the buffer larger by as much: send less, or log until others have "
            "stopped."
        )
    if learnt.truth is None:
        found.append("Nothing was held out, so nothing says how well the link fits: give a --split below 1.")
    return found


def write_document(document: dict[str, Any], path: Path) -> None:
    """Write the document as JSON."""
    write_whole(path, json.dumps(document, indent=2) + "\n")


def link_document(learnt: LearntLink, source: str, files: dict[str, str], remarks: list[str]) -> dict[str, Any]:
    """Return the link as a JSON document: what was fitted, the outcome of each model, and the files written."""
    link, cross = learnt.link, learnt.link.cross_traffic
    return {
        "log": source,
        "packets": {"fitted": len(learnt.fitted_log), "held_out": len(learnt.held_out_log)},
        "link": {
            "base_delay_ns": round(link.base_delay_ns),
            "rate_bps": round(link.rate_bps),
            "rate_spans": link.bottleneck.spans,
            "noise_ns": round(link.bottleneck.noise_ns),
            "buffer_bytes": None if link.buffer.buffer_bytes is None else round(link.buffer.buffer_bytes),
            "largest_backlog_bytes": round(link.buffer.largest_backlog_bytes),
            "random_loss": link.buffer.random_loss,
            "cross_traffic_bps": round(float(cross.rate_bps.mean())),
            "cross_traffic_piece_ns": cross.piece_ns,
            "cross_traffic_exact_fraction": cross.exact_fraction,
        },
        "trace_form": learnt.trace.form.value,
        "held_out": None
        if learnt.truth is None
        else {
            LOG: _outcome_document(learnt.truth, None),
            **{name: _outcome_document(each, learnt.truth) for name, each in learnt.held_out.items()},
        },
        "files": files,
        "remarks": [*remarks, *cautions(learnt)],
    }


def _outcome_document(each: ReplayOutcome, truth: ReplayOutcome | None) -> dict[str, Any]:
    named = zip(QUANTILES, each.delay_ns, strict=True)
    document: dict[str, Any] = {f"delay_p{round(100 * share)}_ns": _whole(delay) for share, delay in named}
    document["loss"] = each.loss
    return document if truth is None else {**document, "mean_quantile_error_ns": _whole(each.error_ns(truth))}


def _whole(time_ns: float) -> int | None:
    """Return a time in whole nanoseconds, None for the delay of packets of which none arrives."""
    return round(time_ns) if math.isfinite(time_ns) else None


def facts(learnt: LearntLink) -> list[tuple[str, str]]:
    """Return what was fitted, as terms and texts."""
    link, cross = learnt.link, learnt.link.cross_traffic
    buffer = link.buffer
    size = "at least " + size_text(buffer.largest_backlog_bytes)
    if buffer.buffer_bytes is not None:
        size = (
            f"{size_text(buffer.buffer_bytes)}, {seconds_text(buffer.buffer_bytes * 8 / link.rate_bps)} of the rate, "
            f"from {count_text(buffer.overflow_losses, 'loss', 'losses')} at a full queue"
        )
    form = "others take part of the rate" if learnt.trace.form.value == "rate" else "others are ahead in the queue"
    return [
        ("base delay", f"{seconds_text(link.base_delay_ns / 1e9)} one way"),
        ("bottleneck rate", f"{rate_text(link.rate_bps)}, from {count_text(link.bottleneck.spans, 'span')} of packets"),
        ("buffer", size),
        ("random loss", percent_text(buffer.random_loss)),
        (
            "cross traffic",
            f"{rate_text(float(cross.rate_bps.mean()))} on average, exact in "
            f"{percent_text(cross.exact_fraction)} of the time",
        ),
        (TRACE, f"in the form {learnt.trace.form.value}: {form}"),
        ("noise of a time", seconds_text(link.bottleneck.noise_ns / 1e9)),
        ("packets", f"{len(learnt.fitted_log)} fitted, {len(learnt.held_out_log)} held out"),
    ]


def rows(learnt: LearntLink) -> list[tuple[str, list[float], float, float | None]]:
    """Return each outcome: its name, delays and loss, and the mean error of the delays; all in seconds."""
    if learnt.truth is None:
        return []
    truth = learnt.truth
    found = [(LOG, truth, None), *((name, each, each.error_ns(truth) / 1e9) for name, each in learnt.held_out.items())]
    return [(name, [delay / 1e9 for delay in each.delay_ns], each.loss, error_s) for name, each, error_s in found]
