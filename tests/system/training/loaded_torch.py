"""What the ranks of ``forked_ranks.py`` need not load again: they are forked from a process that has imported this."""

import torch.distributed.pipelining
import torch.optim
from torch.nn.parallel import DistributedDataParallel

from workloads.baselines import training
from workloads.compute import torch_compute

LOADED = (torch.optim, torch.distributed.pipelining, DistributedDataParallel, training, torch_compute)


def main(arguments: list[str]) -> int:
    return len(arguments)
