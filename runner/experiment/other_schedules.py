"""Name the schedules that no class of pipelines stands for."""

from wanbed.runner.experiment.compute_spec import TRACE_SCHEDULE
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO

OTHER_SCHEDULES = (*BASELINE_SCHEDULES, DILOCO, ATOM)
"""Names that an editor and a refusal offer beside those of classes."""

WITHOUT_PIPELINES = frozenset({TRACE_SCHEDULE})
"""Names of trainings that are no pipelines: no other job runs beside them."""
