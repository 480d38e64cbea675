"""Define the tables of a finished trial, one Parquet file each.

The tables in ``TRIAL_TABLES`` are checked when they are read, and listed on the results page. A table that only one
sampler writes may be defined beside that sampler; it is written too, and any reader of Parquet can read it.
"""

from wanbed.results.records.schema import (
    BACKGROUND_SAMPLES,
    GPU_SAMPLES,
    LINK_CHANGES,
    LINK_SAMPLES,
    LOSSES,
    PREFILL_REQUESTS,
    SPANS,
    SPANS_OF_VIRTUAL_STAGES,
    TCP_SAMPLES,
    BackgroundSample,
    GpuSample,
    LinkChange,
    LinkSample,
    PrefillRequest,
    ReplicaLossRow,
    TcpSample,
)
from wanbed.results.records.span_log import Span
from wanbed.results.records.trial_table import TrialTable

SPANS_FILE = "spans.parquet"
LINK_CHANGES_FILE = "link_changes.parquet"
LINK_SAMPLES_FILE = "link_samples.parquet"
TCP_SAMPLES_FILE = "tcp_samples.parquet"
PREFILL_REQUESTS_FILE = "prefill_requests.parquet"
GPU_SAMPLES_FILE = "gpu_samples.parquet"
LOSSES_FILE = "losses.parquet"
BACKGROUND_SAMPLES_FILE = "background_samples.parquet"


SPANS_TABLE = TrialTable(
    SPANS_FILE,
    "the activities of every GPU and its network",
    SPANS,
    Span,
    always=True,
    fullest=SPANS_OF_VIRTUAL_STAGES,
)
LINK_TABLE = TrialTable(LINK_SAMPLES_FILE, "counters of links and node pairs", LINK_SAMPLES, LinkSample, always=True)
TCP_TABLE = TrialTable(
    TCP_SAMPLES_FILE,
    "the state of every TCP connection, sampled at both ends",
    TCP_SAMPLES,
    TcpSample,
    always=True,
    since_version=2,
)
PREFILL_TABLE = TrialTable(
    PREFILL_REQUESTS_FILE,
    "the outcome of every inference request",
    PREFILL_REQUESTS,
    PrefillRequest,
    always=True,
    since_version=2,
)
GPU_TABLE = TrialTable(GPU_SAMPLES_FILE, "NVML samples of the GPUs, only if configured", GPU_SAMPLES, GpuSample)
CHANGES_TABLE = TrialTable(LINK_CHANGES_FILE, "when links changed, only if any was to change", LINK_CHANGES, LinkChange)
LOSSES_TABLE = TrialTable(LOSSES_FILE, "the losses of each replica, only if torch trained", LOSSES, ReplicaLossRow)

BACKGROUND_TABLE = TrialTable(
    BACKGROUND_SAMPLES_FILE,
    "what flows in the background carried, only if there were any",
    BACKGROUND_SAMPLES,
    BackgroundSample,
)

TRIAL_TABLES = {
    table.file: table
    for table in (
        SPANS_TABLE,
        LINK_TABLE,
        TCP_TABLE,
        PREFILL_TABLE,
        GPU_TABLE,
        CHANGES_TABLE,
        LOSSES_TABLE,
        BACKGROUND_TABLE,
    )
}
"""The tables by file."""
