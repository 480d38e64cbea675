"""What the page on validating a scheduler has its reader do as root: an own schedule on real TCP, and the gate."""

from pathlib import Path

import pytest

from tests.docs.example_scheduler import commands, copied, run

# Simulated, the same package passes the gate in test_validating_a_scheduler.py.
pytestmark = [pytest.mark.measures, pytest.mark.soak]

FEWER = " --set repeats=3"


def test_a_schedule_in_a_package_of_its_own_runs_on_real_tcp_and_passes_the_gate(tmp_path: Path) -> None:
    package = copied(tmp_path)
    install, emulate, compare = (
        next(command for command in reversed(commands()) if command.removeprefix("sudo ").startswith(start))
        for start in ("pip install", "wanbed run", "wanbed compare")
    )
    assert run(install, package).returncode == 0
    done = run(emulate + FEWER, package)
    assert done.returncode == 0, done.stderr
    done = run(compare, package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stock -> ours" in done.stdout
    assert "stock" in (package / "summary.md").read_text(encoding="utf-8")
