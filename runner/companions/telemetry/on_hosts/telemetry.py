"""Sample links, connections, GPUs and the machine beside a training.

A trial keeps the samples of its own traffic, and of the traffic in the background. The bytes that ranks have sent to
other datacenters are compared with the bytes that the WAN links carried: a shortfall went around them. A link carries
more than was sent: headers, and lost bytes that were sent again.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from wanbed.results.records.run_store import Rows, TrialPart
from wanbed.results.records.schema import BACKGROUND, LinkSample, TcpSample
from wanbed.results.records.span_log import ALL_REDUCE, Span, SpanLogContents
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_table import TrialTable
from wanbed.results.records.trial_tables import LINK_TABLE, TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts.samplers import SAMPLERS
from wanbed.runner.companions.telemetry.on_hosts.sampling import Samples, sampling
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.testbed.network.topology import Topology


class Telemetry(Companion):
    """All samplers of a trial."""

    def __init__(self, trial: RunningTrial) -> None:
        self._trial = trial
        self._samples = Samples()

    @classmethod
    def of(cls, trial: RunningTrial) -> Self:
        """Return the telemetry of a trial, which every trial has."""
        return cls(trial)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Sample inside the block. Raise the errors of readings."""
        setting = self._trial.setting
        with sampling(SAMPLERS, self._trial.testbed, setting.epoch_ns, setting.dilation) as self._samples:
            yield

    def left(self, trained: Trained) -> TrialPart:
        """Return the readings, those of links and connections as far as they are the trial's own traffic."""
        samples = replace(self._samples, measured_ns=trained.measured_ns)
        tables = samples.tables
        # In virtual time nobody samples the machine's load.
        facts = {"machine_load": None, **samples.facts}
        # What was on its way to a rank that failed need not have crossed a link.
        if trained.whole:
            facts |= self._carried(trained.logs, tables)
        return TrialPart(self._own(tables), facts)

    def _own(self, tables: Mapping[TrialTable, Rows]) -> Mapping[TrialTable, Rows]:
        """Return the samples of the variant's own connections and node pairs, and of what ran in the background."""
        point, variant = self._trial.point, self._trial.variant
        if not (variant.beside or point.background):
            return tables
        hosts = {place.host.name for place in variant.placement.places}
        return rows_of_job(tables, hosts, point.topology, [flow.hosts for flow in point.background])

    def _carried(self, logs: Sequence[SpanLogContents], tables: Mapping[TrialTable, Rows]) -> Mapping[str, Any]:
        """Return what was sent between datacenters, and what the links carried of it."""
        homes = {host.name: host.datacenter for host in self._trial.point.topology.hosts}
        rows = tables.get(LINK_TABLE, ())
        assert not isinstance(rows, TrialCounters)
        return carried_facts(logs, homes, (LinkSample(*row) for row in rows))


_SHORTFALL = 0.95
"""Of what was sent, a link carries at least this share. The last bytes may still be on their way."""

_ELSEWHERE = "elsewhere"
"""In place of a datacenter: all others together."""

_Ends = tuple[str, str]


def carried_facts(
    logs: Sequence[SpanLogContents], datacenter_of: Mapping[str, str], samples: Iterable[LinkSample]
) -> dict[str, Any]:
    """Return the trial's fact about what was sent and carried, nothing where no link has counters or nothing is known.

    ``logs`` are those of all ranks, ``datacenter_of`` has the datacenter of every host, ``samples`` the readings of the
    links' counters, relative to the first one.
    """
    carried: dict[_Ends, int] = {}
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
        if carried.get(ends, 0) < _SHORTFALL * size_bytes
    ]
    return {
        "carried": {
            "sent_bytes": sum(size for (_, end), size in sent.items() if end == _ELSEWHERE),
            "carried_bytes": sum(size for (_, end), size in carried.items() if end == _ELSEWHERE),
            "short": short,
        }
    }


def sent_bytes(logs: Sequence[SpanLogContents], datacenter_of: Mapping[str, str]) -> Mapping[_Ends, int]:
    """Return the least that each datacenter has sent to each other one, and ``elsewhere``, as far as spans tell.

    Messages are known with both ends, collectives of users' programs by their ranks: whatever the algorithm, a
    datacenter sends at least its part of the sum, and its ranks' inputs where they are gathered.
    """
    sent: Counter[_Ends] = Counter()
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


def rows_of_job(
    tables: Mapping[TrialTable, Rows],
    hosts: Collection[str],
    topology: Topology,
    background: Collection[tuple[str, str]] = (),
) -> dict[TrialTable, Rows]:
    """Return the tables with the connections and node pairs of these hosts alone, and links as the sum of these pairs.

    So the traffic of a trial is the job's own. Rows of links without a pair of the job say that nothing was sent. The
    counters of the pairs of hosts in ``background`` are kept under a scope of their own.
    """
    kept = dict(tables)
    samples = _sampled(tables, LINK_TABLE)
    kept[LINK_TABLE] = [
        *_link_rows(samples, hosts, topology),
        *(
            row._replace(scope=BACKGROUND)
            for row in samples
            if isinstance(row, LinkSample) and row.scope == "node_pair" and (row.source, row.destination) in background
        ),
    ]
    kept[TCP_TABLE] = [row for row in _sampled(tables, TCP_TABLE) if isinstance(row, TcpSample) and row.source in hosts]
    return kept


def _sampled(tables: Mapping[TrialTable, Rows], table: TrialTable) -> Sequence[tuple[Any, ...]]:
    rows = tables.get(table, ())
    if isinstance(rows, TrialCounters):
        raise TypeError("samplers write rows, only a simulation writes columns")
    return rows


def _link_rows(rows: Sequence[tuple[Any, ...]], hosts: Collection[str], topology: Topology) -> Sequence[LinkSample]:
    samples = [row for row in rows if isinstance(row, LinkSample)]
    home = {host.name: host.datacenter for host in topology.hosts}
    pairs = [row for row in samples if row.scope == "node_pair" and row.source in hosts and row.destination in hosts]
    on_link: dict[tuple[int, str, str], list[LinkSample]] = defaultdict(list)
    for row in pairs:
        on_link[row.time_ns, home[row.source], home[row.destination]].append(row)
    links = [
        row._replace(
            wire_bytes=sum(each.wire_bytes for each in own),
            packets=_sum([each.packets for each in own]),
            backlog_bytes=sum(each.backlog_bytes for each in own),
            drops=sum(each.drops for each in own),
        )
        for row in samples
        if row.scope == "link"
        for own in [on_link[row.time_ns, row.source, row.destination]]
    ]
    return [*links, *pairs]


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
