"""What a rank trains, and how the model learns. Needs no torch and goes through JSON."""

from dataclasses import dataclass

from wanbed.workloads.gpt.gpt_config import TRAINED_PRECISIONS, GptConfig
from wanbed.workloads.gpt.learnt_text import HeldOut


@dataclass(frozen=True)
class LearningConfig:
    """The model that is trained, and how it learns.

    - ``precision``: fp32 or bf16, for weights, activations and gradients.
    - ``seed``: for the initial weights and the synthetic tokens.
    - ``text``: the corpus or file that tokens are read from, None for synthetic tokens.
    - ``held_out``: what is not learnt from, None for nothing.

    Raises ValueError naming the field.
    """

    model: GptConfig
    learning_rate: float
    precision: str
    seed: int
    text: str | None = None
    held_out: HeldOut | None = None

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: {self.learning_rate} is not above 0")
        if self.precision not in TRAINED_PRECISIONS:
            raise ValueError(f"precision: torch does not train in {self.precision!r}: {', '.join(TRAINED_PRECISIONS)}")
        if self.seed < 0:
            raise ValueError(f"seed: {self.seed} is below 0")
