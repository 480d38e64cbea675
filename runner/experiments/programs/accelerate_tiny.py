"""Train a tiny language model with Hugging Face accelerate: random weights and random text, so nothing is downloaded.

torchrun --nnodes 3 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 accelerate_tiny.py
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY = 512
CONTEXT = 64


class TinyLanguageModel(nn.Module):
    """A causal transformer of 932,864 parameters: 3.56 MiB in fp32."""

    def __init__(self, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the token that follows each."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.positions, mask=mask, is_causal=True))


def main() -> None:
    """Learn text in which each token says which one follows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4, help="samples of a rank and step")
    arguments = parser.parse_args()

    # Without cpu=True accelerate ignores a launcher where it finds no device, and each rank trains alone.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(0)
    order = torch.randperm(VOCABULARY)
    samples = order[(torch.randint(VOCABULARY, (480, 1)) + torch.arange(CONTEXT)) % VOCABULARY]
    text = DataLoader(TensorDataset(samples), batch_size=arguments.batch, shuffle=True)
    model = TinyLanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, text = accelerator.prepare(model, optimizer, text)

    step = 0
    for _ in range(arguments.epochs):
        for (tokens,) in text:
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            if accelerator.is_main_process:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    accelerator.end_training()


if __name__ == "__main__":
    main()
