"""Run a rank of a torch baseline, from the rendezvous to the last gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from wanbed.results.records.span_log import SpanLog, SpanLogHeader
from wanbed.workloads.baselines.baseline_config import TORCH_DDP, BaselineConfig
from wanbed.workloads.baselines.compute_spans import ComputeSpans
from wanbed.workloads.baselines.data_parallel_baseline import DataParallelBaseline
from wanbed.workloads.baselines.device_marks import create_marks
from wanbed.workloads.baselines.peer_watch import PeerWatch
from wanbed.workloads.baselines.pipeline_baseline import PipelineBaseline
from wanbed.workloads.baselines.rendezvous import connection_fault, join_groups, rendezvous
from wanbed.workloads.compute.device.determinism import choose_kernels
from wanbed.workloads.compute.device.torch_device import create_device
from wanbed.workloads.compute.files.weights_file import save_weights
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.evaluation.snapshots import Snapshots
from wanbed.workloads.model.gpt_stage import DTYPES


def train(rank_config: BaselineConfig, lost: Callable[[str], None]) -> None:
    """Run all iterations, write the gradients if ``rank_config`` names a file, and complete the span log.

    ``lost`` is called with one line, from another thread, if a rank stops its heartbeats. Raise ValueError, OSError or
    RuntimeError; for a connection that Gloo lost the message names the peer. Spans of earlier iterations are in the
    log even then.
    """
    torch.set_num_threads(rank_config.threads)
    choose_kernels(deterministic=rank_config.deterministic)
    store, members = rendezvous(rank_config, lost)
    watch = PeerWatch(rank_config, members, lost)
    watch.start()
    groups = join_groups(rank_config, store)
    header = SpanLogHeader(
        rank_config.rank,
        rank_config.host,
        rank_config.datacenter,
        rank_config.gpu,
        rank_config.pipeline,
        rank_config.stage,
    )
    log = SpanLog(Path(rank_config.span_log), header)
    device = create_device(rank_config.device)
    spans = ComputeSpans(log, rank_config.epoch_ns, create_marks(device.runtime))
    dtype = DTYPES[rank_config.precision]
    baseline: DataParallelBaseline | PipelineBaseline
    if rank_config.schedule == TORCH_DDP:
        baseline = DataParallelBaseline(rank_config, dtype, spans, device)
    else:
        baseline = PipelineBaseline(rank_config, dtype, groups, spans, device)
    snapshots: Snapshots | None = None
    if rank_config.snapshots is not None:
        snapshots = Snapshots(
            rank_config.snapshots,
            rank_config.pipeline,
            rank_config.stage,
            lambda path: save_weights(path, baseline.parameters),
        )
    try:
        for iteration in range(rank_config.iterations):
            spans.flush(baseline.run_iteration(iteration))
            if snapshots is not None:
                snapshots.finished(iteration)
        dist.barrier()
    except RuntimeError as fault:
        raise RuntimeError(connection_fault(str(fault), members)) from fault
    watch.shutdown()
    dist.destroy_process_group()
    if rank_config.gradients is not None:
        _write_gradients(Path(rank_config.gradients), baseline.parameters)
    log.record_device(baseline.device_record())
    log.complete()


def _write_gradients(path: Path, parameters: FlatParameters) -> None:
    """Write each parameter's gradient, in fp32, under its name in the whole model."""
    arrays: dict[str, Any] = {name: gradient.float().cpu().numpy() for name, gradient in parameters.named_gradients()}
    np.savez(path, **arrays)
