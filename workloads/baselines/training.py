"""Run a torch rank, from meeting the others to its last gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from results.records.span_log import SpanLog, SpanLogHeader
from workloads.baselines.baseline_config import TORCH_DDP, BaselineConfig
from workloads.baselines.compute_spans import ComputeSpans
from workloads.baselines.data_parallel_baseline import DataParallelBaseline
from workloads.baselines.peer_watch import PeerWatch
from workloads.baselines.pipeline_baseline import PipelineBaseline
from workloads.baselines.rendezvous import connection_fault, join_groups, rendezvous
from workloads.compute.flat_parameters import FlatParameters
from workloads.model.gpt_stage import DTYPES


def train(plan: BaselineConfig, lost: Callable[[str], None]) -> None:
    """Run every iteration of ``plan``, write the gradients if asked for, and complete the span log.

    ``lost`` is called, from another thread, with one line if a rank falls silent. Raises ValueError, OSError and
    RuntimeError; a connection that Gloo loses is reported with its peer. Spans of the iterations before are in the log.
    """
    torch.set_num_threads(plan.threads)
    store, members = rendezvous(plan, lost)
    watch = PeerWatch(plan, members, lost)
    watch.start()
    groups = join_groups(plan, store)
    header = SpanLogHeader(plan.rank, plan.host, plan.datacenter, plan.gpu, plan.pipeline, plan.stage)
    log = SpanLog(Path(plan.span_log), header)
    spans = ComputeSpans(log, plan.epoch_ns)
    dtype = DTYPES[plan.precision]
    peer: DataParallelBaseline | PipelineBaseline
    if plan.schedule == TORCH_DDP:
        peer = DataParallelBaseline(plan, dtype, spans)
    else:
        peer = PipelineBaseline(plan, dtype, groups, spans)
    try:
        for iteration in range(plan.iterations):
            spans.flush(peer.run_iteration(iteration))
        dist.barrier()
    except RuntimeError as fault:
        raise RuntimeError(connection_fault(str(fault), members)) from fault
    watch.shutdown()
    dist.destroy_process_group()
    if plan.gradients is not None:
        _write_gradients(Path(plan.gradients), peer.parameters)
    log.complete()


def _write_gradients(path: Path, parameters: FlatParameters) -> None:
    """Write each parameter's gradient, in fp32, under its name in the whole model."""
    arrays: dict[str, Any] = {name: gradient.float().numpy() for name, gradient in parameters.named_gradients()}
    np.savez(path, **arrays)
