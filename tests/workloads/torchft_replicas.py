"""A program: replicas of the tests' small GPT trained with torchft's DiLoCo, each in a process forked from this one.

It prints the losses of each as JSON. Arguments: replicas, iterations, sync_every. TORCHFT_LIGHTHOUSE is the URL of
a torchft_lighthouse.
"""

import json
import multiprocessing
import sys
from datetime import timedelta

import torch
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource

LOOPBACK = "127.0.0.1"


def train(replica: int, replicas: int, iterations: int, sync_every: int) -> list[float]:
    """Train one replica, and return the mean loss of each iteration before its update."""
    torch.set_num_threads(1)
    model, tokens = build_stage(TINY, 0, 1, SEED, torch.float32), TokenSource(TINY, SEED)
    inner = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=replicas,
        use_async_quorum=False,
        init_sync=False,
        rank=0,
        world_size=1,
        store_addr=LOOPBACK,
        store_port=store.port,
        replica_id=f"replica_{replica}",
    )
    losses = []
    with DiLoCo(manager, [model], inner, outer, sync_every):
        for iteration in range(iterations):
            batches = [tokens.batch(iteration, replica, microbatch) for microbatch in range(MICROBATCHES)]
            loss = torch.stack([language_loss(model(inputs), targets) for inputs, targets in batches]).mean()
            inner.zero_grad()
            loss.backward()
            inner.step()
            losses.append(loss.item())
    manager.shutdown()
    return losses


def main(replicas: int, iterations: int, sync_every: int) -> None:
    """Train the replicas."""
    with multiprocessing.get_context("fork").Pool(replicas) as processes:
        trainings = [(each, replicas, iterations, sync_every) for each in range(replicas)]
        print(json.dumps(processes.starmap(train, trainings, chunksize=1)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
