"""Spread functions over a rack as tasks of Ray, which starts one anew when its machine leaves."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from wanbed.runner.rack import on_machine
from wanbed.runner.rack.same_sources import Rack
from wanbed.runner.rack.shipped.user_modules import packed_modules
from wanbed.runner.rack.simulations import node_task
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.rack.machine.facts import sources_hash

_STARTED_ANEW = 3
_NONE_LEFT_S = 30.0
"""For how long a rack may be without any CPU before nothing is expected of it."""


class Tasks(Protocol):
    """Functions that are called elsewhere, several at a time. A reference stands for the result of one."""

    @property
    def at_a_time(self) -> int:
        """The number of tasks that run at a time, at this moment."""

    def start(self, function: Callable[[], Any], schedules: tuple[str, ...] = ()) -> Any:
        """Have a function called, which needs these schedules of a user's. Return a reference to its result.

        Raise InputError if one of them cannot be sent.
        """

    def ended(self, references: Collection[Any], timeout_s: float) -> list[Any]:
        """Return the references of what has ended, after ``timeout_s`` at the latest.

        Raise MissingError if nothing can end any more.
        """

    def running(self, references: Collection[Any]) -> int:
        """Return how many of these have not ended."""

    def result(self, reference: Any, what: str) -> Any:
        """Return what a function has returned. ``what`` describes it where it has been lost.

        Raise TrialError if it is lost each time, MissingError where it is refused, or what it has raised.
        """

    def cancel(self, references: Collection[Any]) -> None:
        """End what nobody waits for."""


class SpreadTasks:
    """Tasks on the machines of a rack, one a CPU, see ``Tasks``."""

    def __init__(self, rack: Rack) -> None:
        import ray  # noqa: PLC0415
        from ray import cloudpickle  # noqa: PLC0415

        cloudpickle.register_pickle_by_value(on_machine)
        cloudpickle.register_pickle_by_value(node_task)
        self._rack, self._ray, self._pickle = rack, ray, cloudpickle.dumps
        self._remote = ray.remote(node_task.run_here).options(
            num_cpus=1, max_retries=_STARTED_ANEW, scheduling_strategy="SPREAD"
        )
        self._idle_s = 0.0
        self._modules: dict[tuple[str, ...], Any] = {}

    @property
    def at_a_time(self) -> int:
        """The CPUs of the machines that are there now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def start(self, function: Callable[[], Any], schedules: tuple[str, ...] = ()) -> Any:
        """Have a function called on some machine, which is sent the modules of the schedules."""
        modules = self._sent_modules(schedules) if schedules else None
        return self._remote.remote(self._rack.sent, sources_hash(), modules, self._pickle(function))

    def ended(self, references: Collection[Any], timeout_s: float) -> list[Any]:
        """Return what has ended. Raise MissingError if all machines have left for some time."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout_s)
        self._idle_s = 0.0 if ready or self.at_a_time else self._idle_s + timeout_s
        if self._idle_s >= _NONE_LEFT_S:
            raise MissingError(
                f"--rack {self._rack.cluster.address}: no machine with a CPU has been there for {_NONE_LEFT_S:.0f} s: "
                "look at `ray status`; --resume continues with what is missing"
            )
        return list(ready)

    def running(self, references: Collection[Any]) -> int:
        """Return how many of these have not ended."""
        if not references:
            return 0
        _, unended = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        return len(unended)

    def result(self, reference: Any, what: str) -> Any:
        """Return what a function has returned, or raise as ``Tasks.result`` says."""
        from ray import exceptions  # noqa: PLC0415

        try:
            refusal, result = self._ray.get(reference)
        except exceptions.RayTaskError as fault:
            raise fault.cause from fault
        except exceptions.OutOfMemoryError:
            raise TrialError(
                f"{what}: not enough memory on its machine: start that with fewer --num-cpus, or give a smaller "
                "experiment"
            ) from None
        except exceptions.RayError as fault:
            reason = " ".join(str(fault).split())[:200]
            raise TrialError(f"{what}: its process was lost {_STARTED_ANEW + 1} times: {reason}") from None
        if refusal is not None:
            raise MissingError(f"--rack {self._rack.cluster.address}: {refusal}")
        return result

    def _sent_modules(self, schedules: tuple[str, ...]) -> Any:
        """Return a reference to the modules, an object that Ray takes to each machine once."""
        if schedules not in self._modules:
            self._modules[schedules] = self._ray.put(self._pickle(packed_modules(schedules, ())))
        return self._modules[schedules]

    def cancel(self, references: Collection[Any]) -> None:
        """End tasks whose results nobody waits for."""
        for reference in references:
            self._ray.cancel(reference)
