"""A torch baseline's rank: ``python -m wanbed.workloads.baselines.torch_rank CONFIG.json`` trains a stage or replica.

torch trains over Gloo, by a schedule of ``torch.distributed.pipelining`` or by ``DistributedDataParallel``. The rank
logs spans of its computation, but none of its transfers, which torch does not report. The exit status is 0 if all ranks
have done all iterations; otherwise 1, with one line on stderr. If a rank is lost, every other ends within 10 s.
"""

import logging
import os
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

from wanbed.workloads.baselines.baseline_config import BaselineConfig, read_baseline_config
from wanbed.workloads.host_process import die_with_parent

_fatal = threading.Lock()


def die(line: str) -> NoReturn:
    """Print ``line`` on stderr and end this process with status 1, even if other threads wait.

    Any thread may call it; only the first call prints. The process group is not shut down in order, because that would
    wait for a peer that may be lost. The kernel closes the connections, so that the other ranks notice.
    """
    _fatal.acquire()
    print(line, file=sys.stderr, flush=True)
    os._exit(1)


def first_line(failure: BaseException) -> str:
    """Return the first line of what failed. One that ends in a colon, as torch's schedules wrap it, has its cause."""
    line = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    if not line.endswith(":") or failure.__cause__ is None:
        return line
    return f"{line} {first_line(failure.__cause__)}"


def _prepare_process(rank_config: BaselineConfig) -> None:
    """Tie this process to its parent, and turn off torch's logs and warnings, so that a failure prints one line.

    Raise ValueError if ``epoch_ns`` lies in the future.
    """
    if rank_config.parent_pid is not None:
        die_with_parent(rank_config.parent_pid)
    if rank_config.epoch_ns > time.monotonic_ns():
        raise ValueError("epoch_ns: lies in the future, take CLOCK_MONOTONIC before the rank is started")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def main(arguments: list[str]) -> int:
    """Run the rank configured by the file named on the command line. Return the exit status 0, or end the process."""
    prefix = "wanbed torch rank"
    if len(arguments) != 1:
        die(f"{prefix}: usage: python -m wanbed.workloads.baselines.torch_rank CONFIG.json")
    try:
        rank_config = read_baseline_config(Path(arguments[0]))
        prefix = f"wanbed torch rank {rank_config.place.rank} ({rank_config.place.host})"
        _prepare_process(rank_config)
        from wanbed.workloads.baselines.training import train  # noqa: PLC0415 - torch reads its log level on import

        train(rank_config, lambda line: die(f"{prefix}: {line}"))
    except (ValueError, OSError, RuntimeError) as failure:
        die(f"{prefix}: {first_line(failure)}")
    except Exception as defect:
        traceback.print_exc()
        die(f"{prefix}: {type(defect).__name__}: {defect}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
