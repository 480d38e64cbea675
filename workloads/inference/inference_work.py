"""The parameters of a model's inference: serializable to JSON, and usable without torch."""

from dataclasses import dataclass

from wanbed.workloads.compute.torch_work import DEVICES
from wanbed.workloads.inference.inference_model import InferenceModel

_PRECISIONS = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True)
class InferenceWork:
    """The way in which torch computes ``model``, or some layers of it. Raises ValueError naming the field.

    Weights and prompt tokens are drawn from ``seed``, so every process draws the same ones for a layer and a request.
    ``device`` is auto (cuda if available), cpu or cuda. ``threads`` is the number of torch's CPU threads.
    ``deterministic``: use only kernels that give the same bits in every run.
    """

    model: InferenceModel
    seed: int
    device: str
    threads: int = 1
    deterministic: bool = False

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
        """The precision of weights, activations and KV cache: the one with the model's ``bytes_per_element``."""
        return _PRECISIONS[self.model.bytes_per_element]
