"""One rank of a torch peer: ``python -m workloads.baselines.torch_rank PLAN.json`` trains one stage, or one replica.

torch's own code trains, over torch's own Gloo: the schedules of ``torch.distributed.pipelining`` or
``DistributedDataParallel``. The rank logs when it computed, but not its transfers, which torch does not report. Exit
status 0 if all iterations are done at all ranks; else 1 and one line on standard error, at every rank within 10 s of
the loss of another.
"""

import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

from workloads.baselines.baseline_config import BaselineConfig, read_baseline_config
from workloads.baselines.stderr_tail import die
from workloads.parent_process import die_with_parent


def prepare_process(plan: BaselineConfig) -> None:
    """Tie this process to its parent, and keep torch from adding to the one line of a failure."""
    if plan.parent_pid is not None:
        die_with_parent(plan.parent_pid)
    if plan.epoch_ns > time.monotonic_ns():
        raise ValueError("epoch_ns: lies in the future, take CLOCK_MONOTONIC before the rank is started")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def main(arguments: list[str]) -> int:
    """Run the rank of the plan named on the command line. Returns the exit status."""
    who = "wanbed torch rank"
    if len(arguments) != 1:
        die(f"{who}: usage: python -m workloads.baselines.torch_rank PLAN.json")
    try:
        plan = read_baseline_config(Path(arguments[0]))
        who = f"wanbed torch rank {plan.rank} ({plan.host})"
        prepare_process(plan)
        from workloads.baselines.training import train  # noqa: PLC0415 - torch reads its log level as it is loaded

        train(plan, lambda line: die(f"{who}: {line}"))
    except (ValueError, OSError, RuntimeError) as failure:
        die(f"{who}: {str(failure).strip().splitlines()[0]}")
    except Exception as defect:
        traceback.print_exc()
        die(f"{who}: {type(defect).__name__}: {defect}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
