"""Draw the spans of a user's program: who kept whom waiting in a collective has a slice, an argument and an arrow."""

import numpy as np
import pyarrow as pa

from wanbed.results.perfetto.flows import Flows
from wanbed.results.perfetto.trace_events import chosen, integers, joined, json_text, only_if, thousandths_text
from wanbed.results.perfetto.trial_tables import Spans, Texts
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import COLLECTIVE_KINDS, COMPUTE_KINDS, ITERATION
from wanbed.results.text import kind_text

UNKNOWN = -1


def last_to_begin_of(spans: Spans) -> Column:
    """Return for each span of a collective the row of the same collective's span that began last, else ``UNKNOWN``."""
    # Metrics import pandas, which takes longer than writing the trace of a run that does not need them.
    from wanbed.results.metrics import group_size, last_to_begin  # noqa: PLC0415

    last = np.full(len(spans), UNKNOWN)
    rows = np.flatnonzero(spans.kind.mapped(lambda kind: int(kind in COLLECTIVE_KINDS)) == 1)
    own = spans[rows]
    found = last_to_begin(
        rank=own.rank,
        kind=own.kind.codes,
        group=own.tensor.codes,
        size=own.tensor.mapped(group_size),
        iteration=own.iteration,
        start_ns=own.start_ns,
    )
    last[rows[found >= 0]] = rows[found[found >= 0]]
    return last


def waiting_rows(spans: Spans, last: Column, rows: Column) -> Column:
    """Return those of the rows whose collective began earlier than that of the last rank, and had not ended by then."""
    known = rows[last[rows] >= 0]
    begins_ns = spans.start_ns[last[known]]
    return known[(spans.start_ns[known] < begins_ns) & (begins_ns < spans.end_ns[known])]


def program_slices(
    spans: Spans, rows: Column, process: Column, thread: Column, *, last: Column, shift_ns: int
) -> pa.StringArray:
    """Return an ``X`` event for each of these rows; a collective has the rank that began last, unless unknown."""
    own, of_last = spans[rows], np.maximum(last[rows], 0)
    known = last[rows] >= 0
    waited_ns = np.maximum(spans.start_ns[of_last] - own.start_ns, 0)
    stated = own.kind.equal(ITERATION)
    collective = own.kind.mapped(lambda kind: int(kind in COLLECTIVE_KINDS)) == 1
    grouped = collective & (own.tensor.mapped(lambda group: int(group != "")) == 1)
    aimed = own.peer.mapped(lambda peer: int(peer != "")) == 1
    return joined(
        *_place(process[rows], thread[rows], own.start_ns + shift_ns, own.end_ns - own.start_ns),
        ',"name":"',
        chosen(own.kind, lambda kind: json_text(kind_text(kind))[1:-1]),
        only_if(stated, joined(" ", integers(own.iteration))),
        '","cat":',
        chosen(own.kind, lambda kind: json_text("compute" if kind in COMPUTE_KINDS else kind)),
        *_about(own),
        only_if(own.size_bytes != 0, joined(',"bytes":', integers(own.size_bytes))),
        only_if(grouped, joined(',"group":', chosen(own.tensor, json_text))),
        only_if(known, joined(',"last_to_begin":"', *_rank(spans, of_last), '"')),
        only_if(known, joined(',"waited_us":', thousandths_text(waited_ns))),
        only_if(aimed, joined(',"peer":', chosen(own.peer, json_text))),
        "}},\n",
    )


def inner_slices(
    spans: Spans, rows: Column, process: Column, thread: Column, *, last: Column, shift_ns: int
) -> list[pa.StringArray]:
    """Return two ``X`` events inside each slice of these rows: before the last rank began the collective, and after."""
    own, begins_ns = spans[rows], spans.start_ns[last[rows]]
    waiting = ("waiting for ", *_rank(spans, last[rows]))
    return [
        joined(
            *_place(process[rows], thread[rows], starts_ns + shift_ns, ends_ns - starts_ns),
            ',"name":"',
            *name,
            f'","cat":"{category}"',
            *_about(own),
            "}},\n",
        )
        for name, category, starts_ns, ends_ns in (
            (waiting, "waiting", own.start_ns, begins_ns),
            (("transferring",), "transferring", begins_ns, own.end_ns),
        )
    ]


def flows_from_last(spans: Spans, last: Column) -> Flows:
    """Return an arrow from the rank that began a collective last to each one that waited for it, at that moment.

    It ends at the second one of the ``inner_slices``: a viewer turns an arrow round that ends at a slice which began
    before the one where the arrow does.
    """
    receive = waiting_rows(spans, last, np.arange(len(spans)))
    send = last[receive]
    return Flows(send, receive, spans.start_ns[send], spans.start_ns[send])


def _place(process: Column, thread: Column, at_ns: Column, length_ns: Column) -> tuple[pa.StringArray | str, ...]:
    times = thousandths_text(at_ns), ',"dur":', thousandths_text(length_ns)
    return '{"ph":"X","pid":', integers(process), ',"tid":', integers(thread), ',"ts":', *times


def _about(spans: Spans) -> tuple[pa.StringArray | str, ...]:
    return ',"args":{"rank":', integers(spans.rank), ',"iteration":', integers(spans.iteration)


def _rank(spans: Spans, rows: Column) -> tuple[pa.StringArray | str, ...]:
    """Return the rank of these rows and its host, as parts of a JSON text."""
    host: Texts = spans.host[rows]
    return "rank ", integers(spans.rank[rows]), " on ", chosen(host, lambda name: json_text(name)[1:-1])
