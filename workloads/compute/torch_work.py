"""The configuration of a torch computation. Needs no torch and goes through JSON."""

from dataclasses import dataclass

from wanbed.workloads.compute.activation_wire import EncodedBoundaries
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import SwapSettings, TrainingDevice
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.synchronization.synchronization import Synchronization


@dataclass(frozen=True)
class TorchWork:
    """One stage of one pipeline, trained by torch.

    - ``recompute``: the schedule runs forwards again before their backwards at this stage.
    - ``split_backward``: the schedule splits backwards.
    - ``encoded``: the boundaries of the pipeline whose messages are encoded, None without any.
    - ``synchronization``: how replicas that train alone are kept together, None if they sum their gradients.

    Raises ValueError naming the field.
    """

    computed: ComputedStage
    learning: LearningConfig
    device: TrainingDevice
    recompute: bool = False
    split_backward: bool = False
    synchronization: Synchronization | None = None
    encoded: EncodedBoundaries | None = None

    def __post_init__(self) -> None:
        for part in self.computed.parts:
            self.learning.model.layers_of(part, self.computed.all_parts)
        if self.device.swapping is not None:
            self._check_swapping(self.device.swapping)

    def _check_swapping(self, swapping: SwapSettings) -> None:
        if self.computed.all_parts != 1:
            raise ValueError("swapping: a stage that swaps is the whole model: give 1 stage")
        if self.gradient_replicas != 1:
            raise ValueError("swapping: replicas that swap train alone: give a synchronization, or 1 pipeline")
        if not self.recompute or self.split_backward:
            raise ValueError("swapping: a group computes its forward again before its whole backward")
        groups, layers = swapping.layers_of_groups, self.learning.model.layers
        if groups is not None and (min(groups, default=0) < 1 or sum(groups) != layers):
            raise ValueError(f"swapping: groups of {groups} layers do not make {layers} layers")

    @property
    def gradient_replicas(self) -> int:
        """The number of replicas whose gradients are summed before an update."""
        return self.computed.pipelines if self.synchronization is None else 1
