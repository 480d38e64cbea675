"""Prefill as a service would have left it in a trial that was computed on paper: first come, first served.

Each datacenter's GPUs are one group, each holding an equal part of the layers. A request goes through them one after
the other, in whatever training leaves idle, and is rejected if its KV cache would arrive later than the SLO.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import PREFILL, Span, SpanLogContents

MS = 1_000_000
TOKENS_PER_MS = 40
KV_MS = 15
KV_BYTES_PER_TOKEN = 2048
SLO_MS = 3_000
OUTPUT_TOKENS = 128


@dataclass
class _Gpu:
    """The stretches that are idle, by begin; what is used of one is cut off its front."""

    idle: list[tuple[int, int]]

    def take(self, ready_ns: int, length_ns: int) -> list[tuple[int, int]]:
        """The earliest stretches from then on, that long together; [] if there are not as many."""
        taken: list[tuple[int, int]] = []
        left = length_ns
        for idle_from, end in self.idle:
            begin = max(idle_from, ready_ns)
            if begin < end:
                taken.append((begin, min(end, begin + left)))
                left -= taken[-1][1] - begin
            if not left:
                return taken
        return []

    def use_until(self, moment_ns: int) -> None:
        self.idle = [(max(begin, moment_ns), end) for begin, end in self.idle if end > moment_ns]


def idle_stretches(log: SpanLogContents, end_ns: int, kinds: Sequence[str]) -> list[tuple[int, int]]:
    busy = sorted((span.start_ns, span.end_ns) for span in log.spans if span.kind in kinds)
    begins = [0, *(end for _, end in busy)]
    ends = [*(start for start, _ in busy), end_ns]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if end > begin]


def with_prefill(
    logs: Sequence[SpanLogContents], rate_per_s: float, kinds: Sequence[str], seed: int = 0
) -> tuple[list[SpanLogContents], list[PrefillRequest], dict[str, Any]]:
    """The logs with prefill in them, what became of each request, and what trial.json says of it."""
    chance = Random(seed)
    end_ns = max(span.end_ns for log in logs for span in log.spans)
    datacenters = list(dict.fromkeys(log.header.datacenter for log in logs))
    gpus = {log.header.rank: _Gpu(idle_stretches(log, end_ns, kinds)) for log in logs}
    groups = {name: [log.header.rank for log in logs if log.header.datacenter == name] for name in datacenters}
    spans: dict[int, list[Span]] = {log.header.rank: [] for log in logs}
    requests: list[PrefillRequest] = []
    arrival_ns = 0
    while (arrival_ns := arrival_ns + round(chance.expovariate(rate_per_s) * 1e9)) < end_ns:
        number = len(requests)
        datacenter = datacenters[number % len(datacenters)]
        tokens = chance.randint(200, 3000)
        ready_ns, planned = arrival_ns, list[list[tuple[int, int]]]()
        for rank in groups[datacenter]:
            planned.append(gpus[rank].take(ready_ns, tokens * MS // TOKENS_PER_MS))
            ready_ns = planned[-1][-1][1] + MS if planned[-1] else end_ns
        moved_ns = ready_ns + KV_MS * MS
        came = (number, datacenter, tokens, OUTPUT_TOKENS)
        if not all(planned) or moved_ns - arrival_ns > SLO_MS * MS:
            times = (arrival_ns, None, None, None, None, None)
            requests.append(PrefillRequest(*came, "rejected", "slo", False, -1, 0, *times, kv_bytes=0))
            continue
        for rank, stretches in zip(groups[datacenter], planned, strict=True):
            gpus[rank].use_until(stretches[-1][1])
            spans[rank] += [Span(PREFILL, 0, -1, begin, end, request=number) for begin, end in stretches]
        times = (arrival_ns, arrival_ns, moved_ns, planned[0][0][0], planned[-1][-1][1], moved_ns)
        kv_bytes = tokens * KV_BYTES_PER_TOKEN
        requests.append(PrefillRequest(*came, "admitted", "", False, 0, len(planned[0]), *times, kv_bytes=kv_bytes))
    filled = [
        SpanLogContents(log.header, (*log.spans, *spans[log.header.rank]), complete=True, losses=log.losses)
        for log in logs
    ]
    return filled, requests, facts(requests, len(datacenters), rate_per_s)


def facts(requests: Sequence[PrefillRequest], groups: int, rate_per_s: float) -> dict[str, Any]:
    counts: Mapping[str, int] = {
        "admitted": sum(request.outcome == "admitted" for request in requests),
        "rejected_slo": sum(request.outcome == "rejected" for request in requests),
    }
    return {
        "policy": "planned",
        "slo_ns": SLO_MS * MS,
        "depth": 2,
        "model": "llama-8b",
        "groups": groups,
        "pool_gpus": 0,
        "counts": counts,
        "deadline_overruns": 0,
        "overrun_ns": 0,
        "margin_ns": {"median": 2 * MS, "max": 5 * MS},
        "guard_ns": MS // 2,
        "offered_rate_per_s": rate_per_s,
        "trace": "poisson",
        "skipped_lines": 0,
    }
