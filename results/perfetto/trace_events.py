"""Write the text of a trace's events, as whole columns.

Each function returns a column of texts with one event per row: a JSON object, a comma and a line break. Times are
written from integer nanoseconds as microseconds with three decimals.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wanbed.results.perfetto.counters import Steps
from wanbed.results.perfetto.flows import Flows, carried_text
from wanbed.results.perfetto.trial_tables import NO_VIRTUAL_STAGE, Spans, Texts
from wanbed.results.records.span_columns import Column
from wanbed.results.records.span_log import COMPUTE_KINDS, NO_MICROBATCH, NO_REQUEST
from wanbed.results.text import kind_text

_TRANSFERS = ("send", "receive")


# Build Arrow arrays from buffers. To infer a type, Arrow would import pandas, which takes longer than all the rest.
def _column(values: Column) -> pa.Int64Array:
    numbers = pa.py_buffer(np.ascontiguousarray(values).data)
    return cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(values), [None, numbers]))


def _texts(values: Sequence[str]) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(encoded)))


def _single(text: str) -> pa.StringScalar:
    return _texts([text])[0]


_DECIMALS = _texts([f".{value:03d}" for value in range(1000)])


def json_text(value: Any) -> str:
    """Return any value as JSON, without ASCII escapes, since the trace engine shows names of events as written."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def thousandths_text(thousandths: Column) -> pa.StringArray:
    """Return integers divided by 1000 as text, with three decimals and no rounding. They must not be negative."""
    whole, rest = np.divmod(thousandths, 1000)
    return joined(integers(whole), _DECIMALS.take(_column(rest)))


def slice_events(spans: Spans, process: Column, thread: Column, at_ns: Column, contended_ns: Column) -> pa.StringArray:
    """Return an ``X`` event for every span, which starts at ``at_ns``; contended ones carry ``contended_us``."""
    of_microbatch = spans.microbatch != NO_MICROBATCH
    of_request = spans.request != NO_REQUEST
    of_virtual = spans.virtual_stage != NO_VIRTUAL_STAGE
    name_of_virtual: pa.StringArray | str = ""
    argument_of_virtual: pa.StringArray | str = ""
    if of_virtual.any():
        virtual = integers(spans.virtual_stage)
        name_of_virtual = only_if(of_virtual, joined(" of virtual stage ", virtual))
        argument_of_virtual = only_if(of_virtual, joined(',"virtual_stage":', virtual))
    microbatch, request = integers(spans.microbatch), integers(spans.request)
    transfers = spans.kind.mapped(lambda kind: int(kind in _TRANSFERS)) == 1
    return joined(
        '{"ph":"X","pid":',
        integers(process),
        ',"tid":',
        integers(thread),
        ',"ts":',
        thousandths_text(at_ns),
        ',"dur":',
        thousandths_text(spans.end_ns - spans.start_ns),
        ',"name":"',
        chosen(spans.kind, lambda kind: json_text(kind_text(kind))[1:-1]),
        chosen(spans.tensor, lambda tensor: json_text(f" {carried_text(tensor)}" if tensor else "")[1:-1]),
        only_if(of_microbatch, joined(" ", microbatch)),
        name_of_virtual,
        only_if(of_request, joined(" of request ", request)),
        '","cat":',
        chosen(spans.kind, lambda kind: json_text("compute" if kind in COMPUTE_KINDS else kind)),
        ',"args":{"pipeline":',
        integers(spans.pipeline),
        ',"stage":',
        integers(spans.stage),
        ',"iteration":',
        integers(spans.iteration),
        only_if(of_microbatch, joined(',"microbatch":', microbatch)),
        argument_of_virtual,
        only_if(of_request, joined(',"request":', request)),
        only_if(spans.size_bytes != 0, joined(',"bytes":', integers(spans.size_bytes))),
        only_if(contended_ns != 0, joined(',"contended_us":', thousandths_text(contended_ns))),
        only_if(transfers, joined(',"peer":', chosen(spans.peer, json_text))),
        "}},\n",
    )


def flow_events(
    flows: Flows, names: Texts, process: Column, thread: Column, *, category: str, first_id: int, shift_ns: int
) -> list[pa.StringArray]:
    """Return the beginnings of all arrows, then their ends; ids count up from ``first_id``, ``names`` are of the spans.

    The viewer must read a beginning before its end, since both may be at the same time.
    """
    number = integers(np.arange(first_id, first_id + len(flows.send), dtype=np.int64))
    name = names[flows.send]
    ends = (
        ('{"ph":"s","id":', flows.send, flows.leaves_ns),
        ('{"ph":"f","bp":"e","id":', flows.receive, flows.arrives_ns),
    )
    return [
        joined(
            phase,
            number,
            ',"pid":',
            integers(process[rows]),
            ',"tid":',
            integers(thread[rows]),
            ',"ts":',
            thousandths_text(times_ns + shift_ns),
            f',"cat":"{category}","name":',
            chosen(name, json_text),
            "},\n",
        )
        for phase, rows, times_ns in ends
    ]


def counter_events(steps: Steps, process: int, name: str, shift_ns: int) -> pa.StringArray:
    """Return a ``C`` event for every step of a counter."""
    return joined(
        f'{{"ph":"C","pid":{process},"ts":',
        thousandths_text(steps.time_ns + shift_ns),
        f',"name":{json_text(name)},"args":{{{json_text(steps.quantity.unit)}:',
        thousandths_text(steps.thousandths),
        "}},\n",
    )


def joined(*parts: pa.StringArray | str) -> pa.StringArray:
    """Concatenate texts row by row; a part that is a single text is repeated in every row."""
    # The function's stub accepts only columns, not single texts.
    join: Callable[..., pa.StringArray] = pc.binary_join_element_wise
    return join(*(_single(part) if isinstance(part, str) else part for part in (*parts, "")))


def integers(values: Column) -> pa.StringArray:
    """Return integers as text."""
    return cast("pa.StringArray", _column(values).cast(pa.string()))


def chosen(texts: Texts, written: Callable[[str], str]) -> pa.StringArray:
    """Return for every row the result of ``written`` for its text, which is called once per distinct text."""
    return _texts([written(value) for value in texts.values]).take(_column(texts.codes))


def only_if(condition: npt.NDArray[np.bool_], texts: pa.StringArray) -> pa.StringArray:
    """Return the texts where the condition is true, and "" elsewhere."""
    return cast("pa.StringArray", pc.if_else(_column(condition.astype(np.int64)).cast(pa.bool_()), texts, _single("")))
