"""Train with torchft's DiLoCo: replicas train alone, and average what they have learnt once in a few steps.

A replica is one process, with RANK and WORLD_SIZE in its environment. TORCHFT_LIGHTHOUSE is the URL of a
torchft_lighthouse that every replica can reach.
"""

import argparse
import os
import socket
from datetime import timedelta

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

WIDTH = 1024
LAYERS = 4
CLASSES = 64


def network() -> nn.Sequential:
    """Return four layers of 1024 x 1024 weights: 4 Mi parameters, 16 MiB in fp32."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(LAYERS - 1)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH, bias=False))


def main() -> None:
    """Learn which of some fixed points a noisy sample was drawn around."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32, help="samples of a replica and step")
    parser.add_argument("--sync-every", type=int, default=8, help="inner steps from one average of all to the next")
    parser.add_argument("--fragments", type=int, default=1, help="parts of the model, averaged in turn")
    parser.add_argument("--delay", type=int, default=0, help="steps that an average may travel before it is applied")
    arguments = parser.parse_args()
    rank, replicas = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    torch.manual_seed(0)
    points = torch.randn(CLASSES, WIDTH)
    model = network()
    inner = torch.optim.AdamW(model.parameters(), lr=4e-4)
    size = LAYERS // arguments.fragments
    fragments = [model[start : start + size] for start in range(0, LAYERS, size)]
    outers = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in fragments]

    store = TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=replicas,
        use_async_quorum=False,
        init_sync=False,
        rank=0,
        world_size=1,
        store_addr=socket.gethostname(),
        store_port=store.port,
        replica_id=f"replica_{rank}",
    )

    torch.manual_seed(1 + rank)
    with DiLoCo(manager, fragments, inner, outers, arguments.sync_every, fragment_sync_delay=arguments.delay):
        for step in range(arguments.steps):
            labels = torch.randint(CLASSES, (arguments.batch,))
            samples = points[labels] + torch.randn(arguments.batch, WIDTH)
            loss = nn.functional.cross_entropy(model(samples), labels)
            inner.zero_grad()
            loss.backward()
            inner.step()
            if (step + 1) % arguments.sync_every == 0:
                print(f"round {step // arguments.sync_every} replica {rank} loss {loss.item():.4f}", flush=True)
    manager.shutdown()


if __name__ == "__main__":
    main()
