"""Define one entry of the section ``variants`` of the experiment file."""

from typing import Annotated

from pydantic import Field, JsonValue

from ground.strict_model import StrictModel
from runner.experiment.prefill_spec import Policy
from runner.experiment.quantities import PrintableName, StageDatacenters, whole_number
from runner.experiment.training_spec import VariantTrainingSpec
from runner.experiment.transport_spec import TransportSpec

MAX_POOL_GPUS = 65_536


class VariantSpec(StrictModel):
    """A variant to compare: a schedule, its options (default: none), and a transport.

    ``placement`` names the datacenter of each stage, in one list for all pipelines or one list for each. ``auto`` takes
    the placement with the shortest simulated iteration that the planner finds. By default stages are placed evenly and
    contiguously, all replicas of a stage in one datacenter. ``training`` overrides fields of the experiment's training.

    ``prefill`` selects when the GPUs that train prefill, if the experiment has a section ``prefill``: ``planned``
    (default) in bubbles, as far as training is not delayed; ``greedy`` whenever they are idle; ``none`` never. ``pool``
    (default 0) is the number of GPUs of the serving hosts that only prefill, over all datacenters.
    """

    name: PrintableName
    schedule: PrintableName
    options: dict[str, JsonValue] = Field(default_factory=dict)
    transport: TransportSpec = TransportSpec()
    placement: StageDatacenters | None = None
    training: VariantTrainingSpec = VariantTrainingSpec()
    prefill: Policy | None = None
    pool: Annotated[int, whole_number(0, MAX_POOL_GPUS)] = 0
