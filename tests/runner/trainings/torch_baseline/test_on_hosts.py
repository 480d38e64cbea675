"""The plans of ranks whose training torch itself schedules."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.emulation.rank_configs import FIRST_PORT, SharedConfig
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.torch_baseline.on_hosts import configure_baseline
from wanbed.testbed.network.address_book import AddressBook
from wanbed.workloads.baselines.baseline_config import BaselineConfig, BaselineShape, read_baseline_config
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig


@pytest.fixture
def point() -> SweepPoint:
    return sweep_point(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                "wan": {"latency": "10ms"},
            },
            "model": "gpt-tiny",
            "compute": {"kind": "torch", "checkpointing": False, "threads": 2},
            "training": {"stages": 2, "pipelines": 2, "microbatches": 4, "iterations": 3, "precision": "fp32"},
            "variants": [{"name": "peer", "schedule": "torch-1f1b"}],
            "seed": 9,
        }
    )


def planned(
    point: SweepPoint, folder: Path, *, keep_gradients: bool = False, device: str | None = "cpu"
) -> list[BaselineConfig]:
    setting = SharedConfig(
        addresses=AddressBook(point.topology, slot=3),
        connections={},
        dilation=1.0,
        run_token="",
        epoch_ns=5,
        folder=folder,
        parent_pid=4711,
        keep_gradients=keep_gradients,
        device=device,
    )
    return configure_baseline(point, point.variants[0], setting)


def test_every_rank_meets_at_the_first_ranks_host(point: SweepPoint, tmp_path: Path) -> None:
    plans = planned(point, tmp_path)
    assert [(plan.place.rank, plan.place.host, plan.gloo.listen_address) for plan in plans] == [
        (0, "east-0", "10.3.0.2"),
        (1, "west-0", "10.3.1.2"),
        (2, "east-1", "10.3.0.3"),
        (3, "west-1", "10.3.1.3"),
    ]
    assert {(plan.gloo.store_address, plan.gloo.store_port) for plan in plans} == {("10.3.0.2", FIRST_PORT)}
    assert {plan.gloo.interface for plan in plans} == {"eth0"}


def test_every_rank_trains_as_the_experiment_says(point: SweepPoint, tmp_path: Path) -> None:
    for plan in planned(point, tmp_path):
        model = GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256)
        assert plan.learning == LearningConfig(model, 3e-4, "fp32", seed=9)
        assert plan.shape == BaselineShape("torch-1f1b", stages=2, pipelines=2, microbatches=4)
        assert (plan.iterations, plan.device.threads, plan.kept) == (3, 2, KeptFilesConfig())


def test_gradients_are_kept_where_asked_and_plans_read_back(point: SweepPoint, tmp_path: Path) -> None:
    for plan in planned(point, tmp_path, keep_gradients=True):
        assert plan.kept.gradients == str(tmp_path / f"rank-{plan.place.rank}.gradients.npz")
        plan.write(tmp_path / "plan.json")
        assert read_baseline_config(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("deterministic", [None, True])
def test_kernels_are_deterministic_if_the_file_asks_for_it(
    point: SweepPoint, tmp_path: Path, deterministic: bool | None
) -> None:
    compute = point.spec.compute.model_copy(update={"deterministic": deterministic})
    asked = replace(point, spec=point.spec.model_copy(update={"compute": compute}))
    assert {plan.device.deterministic for plan in planned(asked, tmp_path)} == {bool(deterministic)}


def test_ranks_compute_on_the_device_of_all_others(point: SweepPoint, tmp_path: Path) -> None:
    assert {plan.device.name for plan in planned(point, tmp_path)} == {"cpu"}
    assert {plan.device.name for plan in planned(point, tmp_path, device="cuda")} == {"cuda"}
