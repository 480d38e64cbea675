"""A rank that replays, and the runner that plans for any rank, start without waiting for torch."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "wanbed.workloads.compute.replay",
        "wanbed.workloads.compute.backends.torch_backend",
        "wanbed.runner.experiment.experiment_spec",
        "wanbed.workloads.compute.torch_work",
        "wanbed.workloads.gpt.gpt_config",
        "wanbed.workloads.profiles.compute_profile",
        "wanbed.workloads.profiles.catalogue",
        "wanbed.workloads.rank",
    ],
)
def test_a_module_is_imported_without_torch(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
