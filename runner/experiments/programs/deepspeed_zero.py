"""Train a small network with DeepSpeed's ZeRO: gradients and the optimizer's state are split over the ranks.

torchrun --nnodes 3 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 deepspeed_zero.py
"""

import argparse

import deepspeed
import torch
from torch import nn

WIDTH = 512
LAYERS = 4
CLASSES = 64


def network() -> nn.Sequential:
    """Return four layers of 512 x 512 weights: 1 Mi parameters, 4 MiB in fp32."""
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    """Learn which of some fixed points a noisy sample was drawn around."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank and step")
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO")
    arguments = parser.parse_args()

    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    points = torch.randn(CLASSES, WIDTH)
    model = network()
    config = {
        "train_micro_batch_size_per_gpu": arguments.batch,
        "zero_optimization": {"stage": arguments.stage},
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=config
    )

    torch.manual_seed(1 + rank)
    for step in range(arguments.steps):
        labels = torch.randint(CLASSES, (arguments.batch,))
        samples = (points[labels] + torch.randn(arguments.batch, WIDTH)).to(engine.device)
        loss = nn.functional.cross_entropy(engine(samples), labels.to(engine.device))
        engine.backward(loss)
        engine.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
