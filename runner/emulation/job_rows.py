"""Keep of a trial's samples what concerns one of the jobs that ran at once, and what ran in the background."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wanbed.results.records.run_store import Rows
from wanbed.results.records.schema import BACKGROUND, LinkSample, TcpSample
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_tables import LINK_TABLE, TCP_TABLE, TrialTable
from wanbed.testbed.network.topology import Topology


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
