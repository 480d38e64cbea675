"""A rank that replays, and the runner that plans for any rank, start without waiting for torch."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "workloads.compute.replay",
        "workloads.compute.backends.torch_backend",
        "runner.experiment.experiment_spec",
        "workloads.compute.torch_work",
        "workloads.model.gpt_config",
        "workloads.profiles.compute_profile",
        "workloads.profiles.catalogue",
        "workloads.rank",
    ],
)
def test_a_module_is_imported_without_torch(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
