"""A GPU that only prefills: ``python -m wanbed.workloads.serving.pool_process CONFIG.json``.

The process ends when the controller has closed its connection, or on SIGTERM, with exit status 0. On a failure it exits
with status 1 and one line on standard error.
"""

import signal
import sys
from functools import partial
from pathlib import Path

from wanbed.ground.dataclass_json import read_config
from wanbed.results.records.span_log import NO_MICROBATCH, PREFILL, RankPlace, Span, SpanLog
from wanbed.workloads.host_process import die_with_parent, print_line, run_configured
from wanbed.workloads.serving.gpu_worker import GpuWorker, serving_gpu
from wanbed.workloads.serving.serving_configs import PoolGpuConfig
from wanbed.workloads.transport.peer import TransportError

_NO_PIPELINE = -1
_NAME = "wanbed pool GPU"
_print = partial(print_line, _NAME)


def _run_pool_gpu(config: PoolGpuConfig) -> None:
    """Serve until SIGTERM or the controller's end, then write the spans: they have no microbatch, pipeline or stage."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    gpu = serving_gpu(config.serving)
    worker = GpuWorker(config.serving, config.run_token, gpu, _print)
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    gpu.never_trained()
    worker.serve()
    # A SIGTERM may still arrive while the process exits.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    header = RankPlace(config.serving.gpu, config.host, config.datacenter, config.index, _NO_PIPELINE, _NO_PIPELINE)
    log = SpanLog(Path(config.span_log), header)
    epoch_ns = config.serving.epoch_ns
    for span in gpu.take_spans():
        times_ns = span.start_ns - epoch_ns, span.end_ns - epoch_ns
        log.record(Span(PREFILL, NO_MICROBATCH, NO_MICROBATCH, *times_ns, request=span.request))
    log.complete()


def main(arguments: list[str]) -> int:
    """Run the GPU whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.serving.pool_process",
        name=_NAME,
        read=partial(read_config, PoolGpuConfig),
        run=_run_pool_gpu,
        faults=(TransportError,),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
