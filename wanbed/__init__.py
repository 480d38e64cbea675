"""wanbed: training across emulated datacenters.

This is the public API; docs/python.md shows it. All other modules are internal and may move. Importing this package
loads nothing else: each name loads what it needs when it is used first.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from wanbed import own_modules

if TYPE_CHECKING:
    from ground.strict_model import InputError
    from ground.wanbed_error import WanbedError
    from results import load
    from results.comparison.comparison import Comparison
    from results.reading.run import Run
    from results.records.run_store import RunError
    from runner.runs.faults import TrialError
    from runner.simulator.deadlock import SimulationError
    from testbed.kernel.missing import MissingError
    from wanbed.api.comparing import compare
    from wanbed.api.experiment import Experiment
    from wanbed.api.learning import losses
    from wanbed.api.marking import mark_iteration
    from wanbed.api.planning import VariantPlan, plan
    from wanbed.api.running import run
    from wanbed.api.simulating import simulate
    from workloads.message import Message, MessageKind
    from workloads.schedules.action import Action, ActionKind
    from workloads.schedules.fixed_order import FixedOrder
    from workloads.schedules.pipeline_shape import PipelineShape
    from workloads.schedules.schedule import Schedule, ScheduleError

__all__ = [
    "Action",
    "ActionKind",
    "Comparison",
    "Experiment",
    "FixedOrder",
    "InputError",
    "Message",
    "MessageKind",
    "MissingError",
    "PipelineShape",
    "Run",
    "RunError",
    "Schedule",
    "ScheduleError",
    "SimulationError",
    "TrialError",
    "VariantPlan",
    "WanbedError",
    "compare",
    "load",
    "losses",
    "mark_iteration",
    "plan",
    "run",
    "simulate",
]

_MODULE_OF = {
    "Action": "workloads.schedules.action",
    "ActionKind": "workloads.schedules.action",
    "Comparison": "results.comparison.comparison",
    "Experiment": "wanbed.api.experiment",
    "FixedOrder": "workloads.schedules.fixed_order",
    "InputError": "ground.strict_model",
    "Message": "workloads.message",
    "MessageKind": "workloads.message",
    "MissingError": "testbed.kernel.missing",
    "PipelineShape": "workloads.schedules.pipeline_shape",
    "Run": "results.reading.run",
    "RunError": "results.records.run_store",
    "Schedule": "workloads.schedules.schedule",
    "ScheduleError": "workloads.schedules.schedule",
    "SimulationError": "runner.simulator.deadlock",
    "TrialError": "runner.runs.faults",
    "VariantPlan": "wanbed.api.planning",
    "WanbedError": "ground.wanbed_error",
    "compare": "wanbed.api.comparing",
    "load": "results",
    "losses": "wanbed.api.learning",
    "mark_iteration": "wanbed.api.marking",
    "plan": "wanbed.api.planning",
    "run": "wanbed.api.running",
    "simulate": "wanbed.api.simulating",
}

if not TYPE_CHECKING:  # Or a type checker would take every misspelt name for one that this function returns.

    def __getattr__(name):
        """Import the name's module and return what it defines (PEP 562)."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        own_modules.warn_of_hidden_modules()
        globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return globals()[name]

    def __dir__():
        """Return the public names."""
        return __all__
