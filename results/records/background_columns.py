"""Define the table of what flows in the background carried."""

from typing import NamedTuple

import pyarrow as pa

from wanbed.results.records.schema import trial_schema

BACKGROUND = "background"
"""The scope of a node pair of the background among the counters of links."""

BACKGROUND_SAMPLES = trial_schema(
    ("time_ns", pa.int64(), "when it was counted, since the trial's start"),
    ("flow", pa.string(), "name of the flow, as the user wrote it"),
    ("connection", pa.int32(), "which of its connections, from 0; 0 is all of them in a simulation, and of UDP"),
    ("source", pa.string(), "host that sends"),
    ("destination", pa.string(), "host that receives"),
    ("received_bytes", pa.int64(), "payload received, cumulative since the trial's start"),
)


class BackgroundSample(NamedTuple):
    """The bytes that a connection has carried by a moment; the columns of ``BACKGROUND_SAMPLES`` after the trial's."""

    time_ns: int
    flow: str
    connection: int
    source: str
    destination: str
    received_bytes: int
