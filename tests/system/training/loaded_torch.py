"""What the ranks of ``forked_ranks.py`` need not load again: they are forked from a process that has imported this."""

import torch.distributed.pipelining
import torch.optim
from torch.nn.parallel import DistributedDataParallel

from wanbed.workloads import evaluation
from wanbed.workloads.baselines import training
from wanbed.workloads.compute import torch_compute
from wanbed.workloads.serving import decode_process, layer_measurement

LOADED = (
    torch.optim,
    torch.distributed.pipelining,
    DistributedDataParallel,
    training,
    torch_compute,
    evaluation,
    decode_process,
    layer_measurement,
)


def main(arguments: list[str]) -> int:
    return len(arguments)
