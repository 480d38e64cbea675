"""Define the tables that a run leaves, column by column.

Each file is Parquet and carries the schema's version and every column's meaning in its metadata. Times are integer
nanoseconds since the trial's start and, like rates, are those of the emulated network: dilation is undone before they
are written.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.records.span_log import SPAN_KINDS

SCHEMA_VERSION = 7
"""The version that is written. ``schema_upgrade`` has what earlier ones lack or call otherwise."""

VERSION_KEY = b"wanbed.schema_version"

_MEANING_KEY = b"meaning"

Column = tuple[str, pa.DataType, str]
"""Name, type and meaning of a column."""


def _schema(*columns: Column) -> pa.Schema:
    fields = [pa.field(name, kind, metadata={_MEANING_KEY: meaning.encode()}) for name, kind, meaning in columns]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


_TRIAL = (
    ("sweep_point", pa.int32(), "index of the combination of swept values, from 0"),
    ("variant", pa.string(), "name of the variant, as the user wrote it"),
    ("repeat", pa.int32(), "which repetition of this sweep point and variant, from 0"),
)


def trial_schema(*columns: Column) -> pa.Schema:
    """Return the schema of a table of one trial: which trial it is, and then these columns."""
    return _schema(*_TRIAL, *columns)


_SPAN_COLUMNS = (
    ("rank", pa.int32(), "the rank that did it"),
    ("host", pa.string(), "the host the rank ran on"),
    ("datacenter", pa.string(), "the datacenter the host is in"),
    ("gpu", pa.int32(), "index of the GPU on its host"),
    ("pipeline", pa.int32(), "the data-parallel replica the rank belongs to"),
    ("stage", pa.int32(), "the pipeline stage the rank holds"),
    ("iteration", pa.int32(), "training iteration, from 0, warm-up ones included"),
    ("microbatch", pa.int32(), "microbatch of the iteration, -1 for what concerns none"),
    ("kind", pa.string(), " or ".join((", ".join(SPAN_KINDS[:-1]), SPAN_KINDS[-1]))),
    ("start_ns", pa.int64(), "begin, since the trial's start"),
    ("end_ns", pa.int64(), "end, since the trial's start"),
    ("size_bytes", pa.int64(), "payload sent, received or summed, 0 for computation"),
    ("peer", pa.string(), "the other host of a send or receive, else empty"),
    (
        "tensor",
        pa.string(),
        "what a send or receive carried: activation or gradient; where only that is known, from which rank to which, "
        "like 0,2; of a program's collective the ranks of its group, like 0,1,2; empty if unknown or none of these",
    ),
    ("request", pa.int32(), "the inference request that a prefill is for, -1 for training"),
)

VIRTUAL_STAGE = "virtual_stage"

SPANS = trial_schema(*_SPAN_COLUMNS)

SPANS_OF_VIRTUAL_STAGES = trial_schema(
    *_SPAN_COLUMNS,
    (
        VIRTUAL_STAGE,
        pa.int32(),
        "the virtual stage, in the order of the model, that is computed, that sends or that receives; null for what "
        "concerns none. Only where stages are divided into virtual stages is there such a column",
    ),
)

LINK_SAMPLES = trial_schema(
    ("time_ns", pa.int64(), "when the counters were read, since the trial's start"),
    (
        "scope",
        pa.string(),
        "link: a directed pair of datacenters, with what the trial's own training sent, on hosts its acknowledgements "
        "too; node_pair: a directed pair of hosts; background: one of a flow",
    ),
    ("source", pa.string(), "datacenter or host that the traffic comes from"),
    ("destination", pa.string(), "datacenter or host that the traffic goes to"),
    ("wire_bytes", pa.int64(), "bytes sent with all headers, cumulative since the trial's start"),
    (
        "packets",
        pa.int64(),
        "packets sent, cumulative since the trial's start, null where the kernel cannot count them",
    ),
    ("backlog_bytes", pa.int64(), "bytes in the queue at this moment, those in flight in netem included"),
    ("drops", pa.int64(), "packets dropped, cumulative since the trial's start"),
)

LINK_CHANGES = trial_schema(
    ("due_ns", pa.int64(), "when the link was to change, since the trial's start; first of all, when training began"),
    ("applied_ns", pa.int64(), "when it had changed, null if it never did"),
    ("source", pa.string(), "datacenter that the traffic comes from"),
    ("destination", pa.string(), "datacenter that the traffic goes to"),
    ("up", pa.bool_(), "whether anything arrives from then on"),
    ("latency_ns", pa.int64(), "one-way latency from then on"),
    ("rate_bps", pa.int64(), "rate of the trunk from then on, null if unlimited"),
    ("node_pair_rate_bps", pa.int64(), "cap of each node pair from then on, null if unlimited"),
    *((each.field, pa.int64() if each.is_duration else pa.float64(), each.configured) for each in IMPAIRMENTS),
)

TCP_SAMPLES = trial_schema(
    ("time_ns", pa.int64(), "when the kernel was asked, since the trial's start"),
    ("source", pa.string(), "host whose end of the connection was asked, and which sends what is counted here"),
    ("destination", pa.string(), "host at the other end"),
    ("source_port", pa.int32(), "TCP port at the source; with the next it tells connections of two hosts apart"),
    ("destination_port", pa.int32(), "TCP port at the destination"),
    ("congestion", pa.string(), "congestion control at the source"),
    ("rtt_ns", pa.int64(), "smoothed round-trip time"),
    ("rtt_variation_ns", pa.int64(), "its mean deviation"),
    ("shortest_rtt_ns", pa.int64(), "shortest round trip in the kernel's window, null before the first"),
    ("cwnd_segments", pa.int64(), "congestion window"),
    ("mss_bytes", pa.int32(), "payload of a full segment sent"),
    ("unacked_segments", pa.int64(), "segments in flight, sent and not acknowledged"),
    ("unsent_bytes", pa.int64(), "bytes in the socket that have not been sent at all"),
    ("peer_window_bytes", pa.int64(), "receive window that the other end last advertised, null where not told"),
    ("delivery_rate_bps", pa.int64(), "the most recent goodput that the kernel measured, null if none"),
    ("delivery_app_limited", pa.bool_(), "whether that measurement was limited by what the program gave to send"),
    ("acked_bytes", pa.int64(), "payload acknowledged, cumulative since the connection opened"),
    ("sent_bytes", pa.int64(), "payload sent, retransmissions included, cumulative since the connection opened"),
    ("retransmitted_segments", pa.int64(), "segments sent again, cumulative since the connection opened"),
    ("window_limited_ns", pa.int64(), "time held up by the receive window, cumulative since the connection opened"),
    ("buffer_limited_ns", pa.int64(), "time held up by the send buffer, cumulative since the connection opened"),
)

GPU_SAMPLES = trial_schema(
    ("time_ns", pa.int64(), "when NVML was asked, since the trial's start"),
    ("device", pa.string(), "UUID of the GPU"),
    (
        "utilization",
        pa.float64(),
        "fraction of NVML's last sampling period, 1/6 to 1 s, in which any kernel ran, a spinning one too; null if "
        "not told",
    ),
    ("memory_used_bytes", pa.int64(), "memory in use, by any process, null if not told"),
    ("power_w", pa.float64(), "power drawn, null if not told"),
    ("sm_clock_hz", pa.int64(), "clock of the multiprocessors, null if not told"),
    ("memory_clock_hz", pa.int64(), "clock of the memory, null if not told"),
    ("temperature_c", pa.int64(), "temperature in degrees Celsius, null if not told"),
    ("throttled", pa.string(), "what held the clocks down, joined by commas, empty if nothing"),
)

_IMPAIRMENTS = tuple(
    (f"{side}_{each.column}", pa.float64(), meaning)
    for each in IMPAIRMENTS
    for side, meaning in (("configured", each.configured), ("measured", each.measured))
)

IMPAIRMENT_COLUMNS = frozenset(name for name, *_ in _IMPAIRMENTS)
"""The columns of ``CALIBRATION`` that follow from the impairments there are."""

CALIBRATION = _schema(
    ("sweep_point", pa.int32(), "index of the combination of swept values, from 0"),
    ("source", pa.string(), "where the measurement was sent from"),
    ("destination", pa.string(), "where it was sent to"),
    ("scope", pa.string(), "wan: between datacenters; intra: inside one"),
    ("configured_rtt_ms", pa.float64(), "round-trip time of an echo that the topology asks for"),
    ("measured_rtt_ms", pa.float64(), "round-trip time measured"),
    (
        "configured_goodput_bps",
        pa.float64(),
        "payload rate that the link's rate leaves after headers, null if unlimited",
    ),
    ("measured_goodput_bps", pa.float64(), "payload rate measured, null if not measured"),
    *_IMPAIRMENTS,
    ("within_tolerance", pa.bool_(), "whether what was measured is close enough to what was configured"),
    (
        "configured_short_ms",
        pa.float64(),
        "wire bytes / rate + latency of a short transfer after a pause, null if unlimited",
    ),
    ("measured_short_ms", pa.float64(), "how long it took, null if not measured"),
    ("configured_both_ways_ms", pa.float64(), "the same while the other direction is busy, with its acknowledgements"),
    ("measured_both_ways_ms", pa.float64(), "how long it took, null if not measured"),
    (
        "configured_share_bps",
        pa.float64(),
        "payload rate of each of some node pairs that fill the trunk, null if they cannot",
    ),
    ("measured_share_bps", pa.float64(), "that of the pair farthest from it, null if not measured"),
    ("configured_together_bps", pa.float64(), "payload rate of all of them together"),
    ("measured_together_bps", pa.float64(), "the same, measured, null if not measured"),
    ("burst_bytes", pa.int64(), "what the trunk let go at once beyond its rate after a pause, null if not measured"),
    (
        "condition",
        pa.string(),
        "of a link that changes, since when in a trial it has what was measured, and down if nothing is to arrive; "
        "null of a link that does not",
    ),
    (
        "calibrated_at_point",
        pa.int32(),
        "the sweep point before whose trials this was measured: this one, or an earlier one of the same network, which "
        "has stayed up; null in runs of before there were such, where it is this one",
    ),
)

LATER_COLUMNS = frozenset(CALIBRATION.names[CALIBRATION.names.index("within_tolerance") + 1 :]) | IMPAIRMENT_COLUMNS
"""Of files of this schema version, those that some do not have, from before there were such; there they are null."""

SUMMARY = _schema(
    (
        "sweep_point",
        pa.int32(),
        "index of the combination of swept values, from 0; a column for each swept path follows",
    ),
    ("variant", pa.string(), "name of the variant, as the user wrote it"),
    ("repeat", pa.int32(), "which repetition of this sweep point and variant, from 0"),
    (
        "iteration_time_s",
        pa.float64(),
        "the period of training: mean of the next, but of replicas with clocks of their own; null if none was measured",
    ),
    (
        "iteration_times_s",
        pa.list_(pa.float64()),
        "of each iteration after warm-up the time from the end of the one before it to its own end",
    ),
    (
        "slowest_replica_time_s",
        pa.float64(),
        "iteration time of the slowest of replicas with clocks of their own, null where all step together",
    ),
    ("bound_s", pa.float64(), "time below which no period of the trial can come, null if not known"),
    ("bound_part", pa.string(), "the part of the trial that this bound consists of the most, null if not known"),
    ("over_bound", pa.float64(), "iteration_time_s / bound_s, null if either is unknown"),
    ("makespan_s", pa.float64(), "median time from an iteration's first start to its last end, null if not measured"),
    ("makespan_bound_s", pa.float64(), "time below which no iteration by itself can come, null if not known"),
    ("gpu_utilization", pa.float64(), "share of GPU time computed in for training after warm-up, null if unknown"),
    ("gpu_utilization_with_prefill", pa.float64(), "the same, with prefill in it"),
    ("wan_bytes", pa.int64(), "bytes that crossed between datacenters in the trial, with headers, null if unknown"),
    (
        "wan_goodput_bps",
        pa.float64(),
        "payload rate across the WAN in the measured iterations, what is summed included, null if unknown",
    ),
    ("tokens_per_s", pa.float64(), "tokens trained on a second, null if unknown"),
    ("usd_per_iteration", pa.float64(), "what an iteration costs by the prices of the file, null without any"),
    ("egress_usd_per_iteration", pa.float64(), "the part of it for bytes sent over the WAN"),
    ("usd_per_h", pa.float64(), "what an hour of training costs"),
    ("usd_per_million_tokens", pa.float64(), "what a million tokens cost, null if tokens are not known"),
    ("calibrated", pa.bool_(), "whether the sweep point's links were measured and all within tolerance, or simulated"),
    ("saturated", pa.bool_(), "whether cores set the trial's pace, by the next two: more than 0.1, or than 0.6"),
    ("cores_saturated_fraction", pa.float64(), "share of the trial's time with all cores busy, null if not recorded"),
    (
        "network_core_busy_fraction",
        pa.float64(),
        "the same of the core that carries the guest's network, null if unknown",
    ),
    ("dilation", pa.float64(), "how many times slower than the experiment the machine went"),
    ("engine", pa.string(), "emulate, rack or simulate"),
    ("clock", pa.string(), "real or virtual, null for a simulation"),
    ("not_modelled", pa.list_(pa.string()), "what a simulation lacks of what was asked; of links: not `calibrated`"),
    ("known_misses", pa.list_(pa.string()), "the kinds of simulations known to be off that it is of: known-misses.md"),
    ("outcome", pa.string(), "of a trial with failures: undisturbed, survived, recovered or failed; null without any"),
    ("training_goodput", pa.float64(), "share of the training's time in iterations that count, null without failures"),
    ("iterations_lost", pa.int64(), "finished iterations that were trained again, null without failures"),
    ("time_to_detect_s", pa.float64(), "from a failure until every rank left knew, the longest; null if unknown"),
    ("time_to_recover_s", pa.float64(), "from a failure until training began again, the longest; null if it did not"),
)

PREFILL_REQUESTS = trial_schema(
    ("request", pa.int32(), "number of the request, in order of arrival, from 0"),
    ("datacenter", pa.string(), "the datacenter it was given to"),
    ("prompt_tokens", pa.int32(), "length of its prompt"),
    ("output_tokens", pa.int32(), "tokens it asked for"),
    (
        "outcome",
        pa.string(),
        "admitted: into bubbles; off_loaded: to the pool; rejected; held: still waiting at the end",
    ),
    ("reason", pa.string(), "why it was rejected or held: slo, memory, never_fits, hold_full or forecast; else empty"),
    ("was_held", pa.bool_(), "whether it waited for admission"),
    ("group", pa.int32(), "the group of GPUs of its datacenter that prefilled it, -1 for none"),
    ("chunks", pa.int32(), "into how many chunks its prompt was cut"),
    ("arrival_ns", pa.int64(), "when it arrived, since the trial's start"),
    ("admitted_ns", pa.int64(), "when it was taken in, null if never"),
    ("promised_ns", pa.int64(), "when its KV cache was then predicted to be at the decode host"),
    ("started_ns", pa.int64(), "when its first layer began"),
    ("prefilled_ns", pa.int64(), "when its last layer ended"),
    ("kv_moved_ns", pa.int64(), "when its whole KV cache was at the decode host"),
    ("kv_bytes", pa.int64(), "size of its KV cache"),
)


class LinkSample(NamedTuple):
    """Counters of one directed link or node pair at one moment; the columns of ``LINK_SAMPLES`` after the trial's."""

    time_ns: int
    scope: str
    source: str
    destination: str
    wire_bytes: int
    packets: int | None
    backlog_bytes: int
    drops: int


class LinkChange(NamedTuple):
    """A change of one direction of a WAN link; the columns of ``LINK_CHANGES`` after the trial's."""

    due_ns: int
    applied_ns: int | None
    source: str
    destination: str
    up: bool
    latency_ns: int
    rate_bps: int | None
    node_pair_rate_bps: int | None
    jitter_ns: int
    loss: float


class TcpSample(NamedTuple):
    """State of one end of one connection at one moment; the columns of ``TCP_SAMPLES`` after the trial's."""

    time_ns: int
    source: str
    destination: str
    source_port: int
    destination_port: int
    congestion: str
    rtt_ns: int
    rtt_variation_ns: int
    shortest_rtt_ns: int | None
    cwnd_segments: int
    mss_bytes: int
    unacked_segments: int
    unsent_bytes: int
    peer_window_bytes: int | None
    delivery_rate_bps: int | None
    delivery_app_limited: bool
    acked_bytes: int
    sent_bytes: int
    retransmitted_segments: int
    window_limited_ns: int
    buffer_limited_ns: int


class GpuSample(NamedTuple):
    """NVML's readings of one GPU at one moment; the columns of ``GPU_SAMPLES`` after the trial's."""

    time_ns: int
    device: str
    utilization: float | None
    memory_used_bytes: int | None
    power_w: float | None
    sm_clock_hz: int | None
    memory_clock_hz: int | None
    temperature_c: int | None
    throttled: str


class PrefillRequest(NamedTuple):
    """The fate of one inference request; the columns of ``PREFILL_REQUESTS`` after the trial's."""

    request: int
    datacenter: str
    prompt_tokens: int
    output_tokens: int
    outcome: str
    reason: str
    was_held: bool
    group: int
    chunks: int
    arrival_ns: int
    admitted_ns: int | None
    promised_ns: int | None
    started_ns: int | None
    prefilled_ns: int | None
    kv_moved_ns: int | None
    kv_bytes: int


class CalibrationRow(NamedTuple):
    """One measured path; the columns of ``CALIBRATION`` after the sweep point. None: not measured, or unlimited.

    ``impairments`` holds the ``IMPAIRMENT_COLUMNS`` by name; one that it lacks was not measured.
    """

    source: str
    destination: str
    scope: str
    configured_rtt_ms: float | None
    measured_rtt_ms: float | None
    configured_goodput_bps: float | None
    measured_goodput_bps: float | None
    impairments: Mapping[str, float | None]
    within_tolerance: bool
    configured_short_ms: float | None = None
    measured_short_ms: float | None = None
    configured_both_ways_ms: float | None = None
    measured_both_ways_ms: float | None = None
    configured_share_bps: float | None = None
    measured_share_bps: float | None = None
    configured_together_bps: float | None = None
    measured_together_bps: float | None = None
    burst_bytes: int | None = None
    condition: str | None = None
    calibrated_at_point: int | None = None

    def in_columns(self) -> tuple[Any, ...]:
        """Return the row in the order of the columns."""
        values = {**self._asdict(), **self.impairments}
        return tuple(values.get(name) for name in CALIBRATION.names[1:])


def swept_column(path: str, kind: pa.DataType) -> Column:
    """Return the column of a swept path in a run's summary."""
    return path, kind, "the swept value, as written"


def with_columns(schema: pa.Schema, columns: Iterable[Column], *, after: int) -> pa.Schema:
    """Return the schema with further columns after its first ``after`` ones."""
    listed = list(schema)
    return pa.schema([*listed[:after], *_schema(*columns), *listed[after:]]).with_metadata(schema.metadata)


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


TRAINING, HELD_OUT = SPLITS = ("training", "held_out")
"""The sequences that a loss is measured on: ``training`` ones, which are learnt from, or ``held_out`` ones."""

LOSSES = trial_schema(
    ("iteration", pa.int32(), "training iteration, from 0, warm-up ones included"),
    (
        "split",
        pa.string(),
        "training: of the sequences of that iteration, before its update; held_out: of sequences that are never "
        "learnt from, after it",
    ),
    ("pipeline", pa.int32(), "the data-parallel replica that it is the loss of"),
    ("loss", pa.float64(), "mean cross entropy of the next tokens, in nats; NaN if the training diverged"),
)


class ReplicaLossRow(NamedTuple):
    """The loss of one replica in one iteration; the columns of ``LOSSES`` after the trial's."""

    iteration: int
    split: str
    pipeline: int
    loss: float
