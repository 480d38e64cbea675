"""A GPU that only prefills: ``python -m workloads.serving.pool_process PLAN.json``.

It ends when the controller has gone, or on SIGTERM. Exit status 0 then; else 1 and one line on standard error.
"""

import signal
import sys
from pathlib import Path

from results.records.span_log import NO_MICROBATCH, PREFILL, Span, SpanLog, SpanLogHeader
from workloads.parent_process import die_with_parent
from workloads.plan_file import read_plan
from workloads.serving.gpu.gpu_worker import GpuWorker
from workloads.serving.gpu.serving_gpu import serving_gpu
from workloads.serving.serving_configs import PoolGpuConfig
from workloads.transport.peer import TransportError

NO_PIPELINE = -1


def run_pool_gpu(plan: PoolGpuConfig) -> None:
    """Serve until SIGTERM or the controller's end, then write the spans: of no iteration, pipeline or stage."""
    gpu = serving_gpu(plan.serving)
    worker = GpuWorker(plan.serving, plan.run_token, gpu, _say)
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    gpu.never_trained()
    worker.serve()
    # It may be told to end while it does.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    header = SpanLogHeader(plan.serving.gpu, plan.host, plan.datacenter, plan.index, NO_PIPELINE, NO_PIPELINE)
    log = SpanLog(Path(plan.span_log), header)
    for span in gpu.take_spans():
        times_ns = span.start_ns - plan.epoch_ns, span.end_ns - plan.epoch_ns
        log.record(Span(PREFILL, NO_MICROBATCH, NO_MICROBATCH, *times_ns, request=span.request))
    log.complete()


def main(arguments: list[str]) -> int:
    """Run the GPU of the plan named on the command line. Returns the exit status."""
    if len(arguments) != 1:
        _say("usage: python -m workloads.serving.pool_process PLAN.json")
        return 1
    try:
        plan = read_plan(PoolGpuConfig, Path(arguments[0]))
        if plan.parent_pid is not None:
            die_with_parent(plan.parent_pid)
        run_pool_gpu(plan)
    except (TransportError, ValueError, OSError, RuntimeError) as failure:
        _say(f"{type(failure).__name__}: {failure}")
        return 1
    return 0


def _say(line: str) -> None:
    print(f"wanbed pool GPU: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
