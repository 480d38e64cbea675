"""The input of a model's inference, in a form that needs no torch and goes through JSON."""

from dataclasses import dataclass

from workloads.compute.torch_work import DEVICES
from workloads.inference.inference_model import InferenceModel

_PRECISIONS = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True)
class InferenceWork:
    """``model`` as torch computes it, whole or some of its layers.

    Weights and the tokens of prompts come from ``seed``: all who have a layer have the same one. ``device`` is auto
    (cuda where there is one), cpu or cuda, ``threads`` are those that torch computes with on the CPU. Raises ValueError
    naming the field.
    """

    model: InferenceModel
    seed: int
    device: str
    threads: int = 1

    def __post_init__(self) -> None:
        if self.model.bytes_per_element not in _PRECISIONS:
            raise ValueError(f"model: torch has no precision of {self.model.bytes_per_element} bytes an element here")
        for name, least in (("seed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if self.device not in DEVICES:
            raise ValueError(f"device: {self.device!r} is none of {', '.join(DEVICES)}")

    @property
    def precision(self) -> str:
        """The precision of weights, activations and KV cache: the one that takes as many bytes as the model counts."""
        return _PRECISIONS[self.model.bytes_per_element]
