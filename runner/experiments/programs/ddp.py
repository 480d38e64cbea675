"""Train a small network with DistributedDataParallel: each step all-reduces its gradients, 4 MiB of fp32.

torchrun --nnodes 3 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 ddp.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS = 4
CLASSES = 64


def network(width: int) -> nn.Sequential:
    """Return four layers of width x width weights: with 512, 1 Mi parameters."""
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    """Learn which of some fixed points a noisy sample was drawn around."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=512, help="of a layer")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    points = torch.randn(CLASSES, arguments.width, device=device)
    model = DistributedDataParallel(network(arguments.width).to(device), device_ids=[device] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)

    torch.manual_seed(1 + rank)
    for step in range(arguments.steps):
        labels = torch.randint(CLASSES, (arguments.batch,), device=device)
        samples = points[labels] + torch.randn(arguments.batch, arguments.width, device=device)
        loss = nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
