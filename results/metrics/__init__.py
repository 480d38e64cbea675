"""Compute figures from a trial's traces. All functions are pure; each documents its formula, unit and source.

``spans`` and ``link_samples`` are data frames of one trial, with the columns of ``wanbed.results.records.schema``.
Times are those of the emulated network, without dilation. Reports, comparisons and summaries take every figure from
here.
"""

from wanbed.results.metrics.collective_times import CollectiveTime, collective_times
from wanbed.results.metrics.collectives import UNMATCHED, group_size, last_to_begin
from wanbed.results.metrics.contention import (
    DeviceContention,
    contended_ns,
    contention_of_spans,
    device_contention,
    devices_of_seats,
)
from wanbed.results.metrics.gpu_time import (
    gpu_busy,
    gpu_utilization,
    gpu_utilizations,
    idle_share,
    prefill_gpu_time_ns,
    prefill_ns,
    spans_of_training_gpus,
    union_length_ns,
)
from wanbed.results.metrics.idle_causes import IDLE_CAUSES, idle_causes
from wanbed.results.metrics.iterations import (
    NS_PER_S,
    Window,
    iteration_times_s,
    iteration_windows,
    mean_time_s,
    measured_window,
    median_time_s,
    over_bound,
    successive_windows,
    tokens_per_s,
)
from wanbed.results.metrics.own_clocks import OwnClocks, own_clocks
from wanbed.results.metrics.prefill import (
    POOL_UTILIZATION,
    REJECTION_REASONS,
    TTFT_PERCENTILES,
    arrived_within,
    nearest_rank,
    outcome_counts,
    prefilled_tokens,
    ttft_ns,
)
from wanbed.results.metrics.program_time import (
    COLLECTIVE,
    COMPUTE,
    OPTIMIZER,
    OTHER,
    OVERLAPPED,
    TRANSFER,
    RankTime,
    profiled_iterations,
    program_busy,
    program_parts,
    rank_times,
)
from wanbed.results.metrics.synchronized_iterations import (
    awaited,
    whole_periods,
)
from wanbed.results.metrics.wan import wan_bytes, wan_bytes_within, wan_goodput_bps

__all__ = [
    "COLLECTIVE",
    "COMPUTE",
    "IDLE_CAUSES",
    "NS_PER_S",
    "OPTIMIZER",
    "OTHER",
    "OVERLAPPED",
    "POOL_UTILIZATION",
    "REJECTION_REASONS",
    "TRANSFER",
    "TTFT_PERCENTILES",
    "UNMATCHED",
    "CollectiveTime",
    "DeviceContention",
    "OwnClocks",
    "RankTime",
    "Window",
    "arrived_within",
    "awaited",
    "collective_times",
    "contended_ns",
    "contention_of_spans",
    "device_contention",
    "devices_of_seats",
    "gpu_busy",
    "gpu_utilization",
    "gpu_utilizations",
    "group_size",
    "idle_causes",
    "idle_share",
    "iteration_times_s",
    "iteration_windows",
    "last_to_begin",
    "mean_time_s",
    "measured_window",
    "median_time_s",
    "nearest_rank",
    "outcome_counts",
    "over_bound",
    "own_clocks",
    "prefill_gpu_time_ns",
    "prefill_ns",
    "prefilled_tokens",
    "profiled_iterations",
    "program_busy",
    "program_parts",
    "rank_times",
    "spans_of_training_gpus",
    "successive_windows",
    "tokens_per_s",
    "ttft_ns",
    "union_length_ns",
    "wan_bytes",
    "wan_bytes_within",
    "wan_goodput_bps",
    "whole_periods",
]
