"""wanbed: training across emulated datacenters.

This is the public API; docs/python.md shows it. All other modules are internal and may move. Importing this package
loads nothing else: each name loads what it needs when it is used first.
"""

TYPE_CHECKING = False
"""True to type checkers, by its name. To import ``typing`` takes longer than all else before Ctrl-C is met."""

if TYPE_CHECKING:
    from wanbed.api.comparing import compare
    from wanbed.api.experiment import Experiment
    from wanbed.api.learning import losses
    from wanbed.api.marking import mark_iteration
    from wanbed.api.planning import VariantPlan, plan
    from wanbed.api.running import run
    from wanbed.api.simulating import simulate
    from wanbed.ground.errors import InputError, MissingError, SimulationError, WanbedError
    from wanbed.results import load
    from wanbed.results.comparison.comparison import Comparison
    from wanbed.results.reading.run import Run
    from wanbed.results.records.run_store import RunError
    from wanbed.runner.runs.faults import TrialError
    from wanbed.workloads.message import Message, MessageKind
    from wanbed.workloads.schedules.action import Action, ActionKind
    from wanbed.workloads.schedules.fixed_order import FixedOrder
    from wanbed.workloads.schedules.pipeline_shape import PipelineShape
    from wanbed.workloads.schedules.schedule import Schedule, ScheduleError

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
    "Action": "wanbed.workloads.schedules.action",
    "ActionKind": "wanbed.workloads.schedules.action",
    "Comparison": "wanbed.results.comparison.comparison",
    "Experiment": "wanbed.api.experiment",
    "FixedOrder": "wanbed.workloads.schedules.fixed_order",
    "InputError": "wanbed.ground.errors",
    "Message": "wanbed.workloads.message",
    "MessageKind": "wanbed.workloads.message",
    "MissingError": "wanbed.ground.errors",
    "PipelineShape": "wanbed.workloads.schedules.pipeline_shape",
    "Run": "wanbed.results.reading.run",
    "RunError": "wanbed.results.records.run_store",
    "Schedule": "wanbed.workloads.schedules.schedule",
    "ScheduleError": "wanbed.workloads.schedules.schedule",
    "SimulationError": "wanbed.ground.errors",
    "TrialError": "wanbed.runner.runs.faults",
    "VariantPlan": "wanbed.api.planning",
    "WanbedError": "wanbed.ground.errors",
    "compare": "wanbed.api.comparing",
    "load": "wanbed.results",
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
        from importlib import import_module  # noqa: PLC0415

        globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return globals()[name]

    def __dir__():
        """Return the public names."""
        return __all__
