import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.workloads.compute.device.test_torch_device import WORK
from wanbed.workloads.compute.device.determinism import choose_kernels, kernels_are_deterministic
from wanbed.workloads.compute.torch_compute import TorchCompute

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def any_kernels_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    yield
    choose_kernels(deterministic=False)
    os.environ.pop(WORKSPACE, None)


def test_torch_uses_any_kernel_unless_deterministic_ones_are_chosen() -> None:
    choose_kernels(deterministic=False)
    assert not kernels_are_deterministic()
    assert WORKSPACE not in os.environ
    choose_kernels(deterministic=True)
    assert kernels_are_deterministic()
    assert os.environ[WORKSPACE] == ":4096:8"


def test_a_workspace_that_the_user_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    choose_kernels(deterministic=True)
    assert os.environ[WORKSPACE] == ":16:8"


def test_new_tensors_are_never_filled_with_nan() -> None:
    choose_kernels(deterministic=True)
    # Memory that was used before may hold anything, also NaN here and there.
    assert not torch.empty(2**24).isnan().all()


@pytest.mark.parametrize("deterministic", [False, True])
def test_training_chooses_as_configured_and_records_it(deterministic: bool) -> None:
    compute = TorchCompute(replace(WORK, deterministic=deterministic), lambda _: None)
    assert kernels_are_deterministic() is deterministic
    assert compute.record().deterministic is deterministic
