"""Tasks as those that a rack gets, done in this process when they are waited for."""

from collections.abc import Callable, Collection
from typing import Any


class TasksAtHand:
    """Stands for ``wanbed.runner.rack_runs.simulations.SpreadTasks``: a task ends when it is looked for.

    ``started`` has them, ``schedules`` the user's schedules that each needs. ``cancelled`` is what nobody waited for.
    ``looks`` tasks are looked for in vain first.
    """

    def __init__(self, at_a_time: int = 2, looks: int = 0) -> None:
        self.at_a_time = at_a_time
        self.started: list[Callable[[], Any]] = []
        self.schedules: list[tuple[str, ...]] = []
        self.cancelled: list[int] = []
        self._looks = looks
        self._ended: dict[int, Any] = {}

    def start(self, function: Callable[[], Any], schedules: tuple[str, ...] = ()) -> int:
        self.started.append(function)
        self.schedules.append(schedules)
        return len(self.started) - 1

    def ended(self, references: Collection[int], timeout_s: float) -> list[int]:
        if self._looks:
            self._looks -= 1
            return []
        first = min(references)
        self._ended[first] = self.started[first]()
        return [first]

    def running(self, references: Collection[int]) -> int:
        return sum(reference not in self._ended for reference in references)

    def result(self, reference: int, what: str) -> Any:
        return self._ended[reference]

    def cancel(self, references: Collection[int]) -> None:
        self.cancelled += references
