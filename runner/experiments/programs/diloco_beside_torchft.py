"""Train a small GPT with torchft's DiLoCo, and print the loss of every step.

The model, its first weights and its tokens are those that ``schedule: diloco`` trains with for the same dimensions and
seed, written again in plain torch. A replica is one process, with RANK and WORLD_SIZE in its environment.
TORCHFT_LIGHTHOUSE is the URL of a torchft_lighthouse that every replica can reach.
"""

import argparse
import hashlib
import math
import os
import socket
from datetime import timedelta

import numpy as np
import torch
from torch import nn
from torch.distributed import TCPStore
from torch.nn import functional
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

DEVIATION = 0.02


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, L, H) to (B, L, H)."""
        split = [part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.query_key_value(x).chunk(3, 2)]
        return self.output(functional.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, 4 * hidden, bias=False)
        self.output = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, L, H) to (B, L, H)."""
        return self.output(functional.gelu(self.inner(x)))


class Block(nn.Module):
    """Attention and feed-forward, each after a norm, each added to its input."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.feed_forward_norm = nn.LayerNorm(hidden)
        self.feed_forward = FeedForward(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, L, H) to (B, L, H)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Gpt(nn.Module):
    """A decoder-only GPT. Each weight depends on the seed and its name."""

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(given.vocabulary, given.hidden)
        self.positions = nn.Embedding(given.context, given.hidden)
        self.layers = nn.ModuleList(Block(given.hidden, given.heads) for _ in range(given.layers))
        self.norm = nn.LayerNorm(given.hidden)
        self.head = nn.Linear(given.hidden, given.vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                deviation = DEVIATION / math.sqrt(2 * given.layers) if name.endswith(".output.weight") else DEVIATION
                digest = hashlib.sha256(f"{given.seed} {name}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
                nn.init.normal_(parameter, 0, deviation, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map token numbers, (B, L), to logits, (B, L, vocabulary)."""
        x = self.tokens(x) + self.positions.weight
        for block in self.layers:
            x = block(x)
        return self.head(self.norm(x))


def batch(given: argparse.Namespace, step: int, replica: int, sequence: int) -> torch.Tensor:
    """Return a sequence and the token after it: it starts at a random token and goes on by random steps of 1 to 8."""
    random = np.random.default_rng((given.seed, step, replica, sequence))
    steps = random.integers(1, 9, given.context + 1)
    steps[0] = random.integers(given.vocabulary)
    return torch.from_numpy(np.cumsum(steps) % given.vocabulary).unsqueeze(0)


def main() -> None:
    """Train, and print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("layers", 5), ("hidden", 256), ("context", 64), ("heads", 4), ("vocabulary", 469)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sequences", type=int, default=2, help="sequences of a replica and step")
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--sync-every", type=int, default=4, help="inner steps from one average of all to the next")
    parser.add_argument("--buckets", action="store_true", help="average flat buckets of 1 GiB, not each tensor alone")
    given = parser.parse_args()
    rank, replicas = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    model = Gpt(given)
    inner = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
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
    with DiLoCo(manager, [model], inner, outer, given.sync_every, use_bucketization=given.buckets):
        for step in range(given.steps):
            inner.zero_grad()
            loss = 0.0
            for sequence in range(given.sequences):
                tokens = batch(given, step, rank, sequence)
                logits = model(tokens[:, :-1]).flatten(0, 1)
                part = functional.cross_entropy(logits, tokens[:, 1:].flatten()) / given.sequences
                part.backward()
                loss += part.item()
            # Before the step, which waits for an average now and then, and after which the last line would be cut off.
            print(f"step {step} loss {loss:.7f}", flush=True)
            inner.step()
    manager.shutdown()


if __name__ == "__main__":
    main()
