"""A pytest plugin: share files of tests out among workers, also after one of them has crashed.

A test that reaches its limit ends its worker. With ``--dist loadfile`` pytest-xdist (3.8) then gives everything that
this worker ever had to the others: the test itself, which ends them too, and files that are done, which leave whoever
gets them waiting for ever.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class SurvivingScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Give the others only the tests that a crashed worker had not begun."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a worker out. Return the test that it crashed in, None if it had ended all of its tests."""
        units = self.assigned_work.pop(node).items()
        left = {scope: {test: False for test, done in unit.items() if not done} for scope, unit in units}
        crashed = next((test for unit in left.values() for test in unit), None)
        for unit in left.values():
            unit.pop(crashed or "", None)
        self.workqueue.update({scope: unit for scope, unit in left.items() if unit})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SurvivingScheduling | None:
    """Return the scheduling by files."""
    return SurvivingScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
