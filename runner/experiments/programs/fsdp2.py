"""Train a small network with FSDP2: parameters are gathered before each layer, gradients reduced and scattered after.

torchrun --nnodes 3 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 fsdp2.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 512
LAYERS = 4
CLASSES = 64


def network() -> nn.Sequential:
    """Return four layers of 512 x 512 weights: 1 Mi parameters, 4 MiB in fp32."""
    hidden = [nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(LAYERS - 1)]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, WIDTH, bias=False))


def main() -> None:
    """Learn which of some fixed points a noisy sample was drawn around."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))

    torch.manual_seed(0)
    points = torch.randn(CLASSES, WIDTH, device=device)
    model = network().to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)

    torch.manual_seed(1 + rank)
    for step in range(arguments.steps):
        labels = torch.randint(CLASSES, (arguments.batch,), device=device)
        samples = points[labels] + torch.randn(arguments.batch, WIDTH, device=device)
        loss = nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
