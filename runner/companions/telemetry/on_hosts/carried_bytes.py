"""Compare what ranks have sent to other datacenters with what the WAN links carried: a shortfall went around them.

What crosses a link has headers too, and what was lost was sent again, so that a link carries more than was sent.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import ALL_REDUCE, Span, SpanLogContents

SHORTFALL = 0.95
"""Of what was sent, a link carries at least this share. The last bytes may still be on their way."""
_ELSEWHERE = "elsewhere"
"""In place of a datacenter: all others together."""

Ends = tuple[str, str]


def carried_facts(
    logs: Sequence[SpanLogContents], datacenter_of: Mapping[str, str], samples: Iterable[LinkSample]
) -> dict[str, Any]:
    """Return the trial's fact about what was sent and carried, nothing where no link has counters or nothing is known.

    ``logs`` are those of all ranks, ``datacenter_of`` has the datacenter of every host, ``samples`` the readings of the
    links' counters, relative to the first one.
    """
    carried: dict[Ends, int] = {}
    for sample in samples:
        if sample.scope == "link":
            ends = (sample.source, sample.destination)
            carried[ends] = max(carried.get(ends, 0), sample.wire_bytes)
    sent = sent_bytes(logs, datacenter_of)
    if not carried or not sent:
        return {}
    for source, destination in [*carried]:
        out = (source, _ELSEWHERE)
        carried[out] = carried.get(out, 0) + carried[source, destination]
    short = [
        [*ends, size_bytes, carried.get(ends, 0)]
        for ends, size_bytes in sorted(sent.items())
        if carried.get(ends, 0) < SHORTFALL * size_bytes
    ]
    return {
        "carried": {
            "sent_bytes": sum(size for (_, end), size in sent.items() if end == _ELSEWHERE),
            "carried_bytes": sum(size for (_, end), size in carried.items() if end == _ELSEWHERE),
            "short": short,
        }
    }


def sent_bytes(logs: Sequence[SpanLogContents], datacenter_of: Mapping[str, str]) -> Mapping[Ends, int]:
    """Return the least that each datacenter has sent to each other one, and ``elsewhere``, as far as spans tell.

    Messages are known with both ends, collectives of users' programs by their ranks: whatever the algorithm, a
    datacenter sends at least its part of the sum, and its ranks' inputs where they are gathered.
    """
    sent: Counter[Ends] = Counter()
    home = {log.header.rank: datacenter_of[log.header.host] for log in logs}
    members: dict[tuple[str, str], list[SpanLogContents]] = defaultdict(list)
    for log in logs:
        here = home[log.header.rank]
        for span in log.spans:
            there = datacenter_of.get(span.peer) if span.kind == "send" else None
            if there is not None and there != here:
                sent[here, there] += span.size_bytes
                sent[here, _ELSEWHERE] += span.size_bytes
        for group in {span.tensor for span in log.spans if _group(span)}:
            members[here, group].append(log)
    for (here, group), own in members.items():
        everybody = [int(rank) for rank in group.split(",")]
        if {home.get(rank) for rank in everybody} <= {here}:
            continue
        first = min(own, key=lambda log: log.header.rank)
        sent[here, _ELSEWHERE] += sum(
            _least_bytes(span, len(own), len(everybody)) for span in first.spans if span.tensor == group
        )
    return {ends: size_bytes for ends, size_bytes in sent.items() if size_bytes}


def _group(span: Span) -> str:
    """Return the ranks of a collective whose group is known, "" for any other span."""
    return span.tensor if span.kind in {ALL_REDUCE, "all_gather", "reduce_scatter"} and "," in span.tensor else ""


def _least_bytes(span: Span, ranks_here: int, ranks: int) -> int:
    """Return what a datacenter with ``ranks_here`` of a collective's ranks sends at least; sizes are of one input."""
    if span.kind == ALL_REDUCE:
        return span.size_bytes
    if span.kind == "all_gather":
        return span.size_bytes * ranks_here
    return span.size_bytes * (ranks - ranks_here) // ranks if span.kind == "reduce_scatter" else 0
