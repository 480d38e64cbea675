from pathlib import Path
from typing import Any

import pytest

from ground.strict_model import InputError
from runner.emulation import gpu_provisioning
from runner.emulation.gpu_provisioning import check_gpus, provision_gpus
from runner.planner.experiment_file import parse_experiment
from runner.resolve.experiment import Experiment
from testbed.gpus.gpus import Gpu
from testbed.kernel.missing import MissingError

TORCH = {"kind": "torch", "device": "cuda"}


def experiment(compute: dict[str, Any], hosts: int = 2) -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": hosts}]},
        "model": "gpt-tiny",
        "compute": compute,
        "training": {"stages": 2, "precision": "fp32"},
    }
    return parse_experiment(document, "exp.yaml", Path())


def machine(monkeypatch: pytest.MonkeyPatch, *uuids: str | None, visible: str | None = None) -> None:
    monkeypatch.setattr(gpu_provisioning, "machine_gpus", lambda: tuple(Gpu("NVIDIA H200", "570", u) for u in uuids))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def uuids_of(one: Experiment) -> dict[str, tuple[str, ...]] | None:
    (point,) = one.points()
    found = provision_gpus(point)
    return None if found is None else dict(found.uuids)


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_hosts_own_the_machines_gpus(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    machine(monkeypatch, "GPU-0", "GPU-1", "GPU-2")
    assert uuids_of(experiment({**TORCH, "device": device})) == {"east-0": ("GPU-0",), "east-1": ("GPU-1",)}


def test_only_gpus_that_this_process_sees_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0", "GPU-1", "GPU-2", visible="2,1")
    assert uuids_of(experiment(TORCH)) == {"east-0": ("GPU-2",), "east-1": ("GPU-1",)}


def test_hosts_share_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0")
    assert uuids_of(experiment({**TORCH, "sharing": 2})) == {"east-0": ("GPU-0",), "east-1": ("GPU-0",)}
    with pytest.raises(InputError, match=r"^compute\.sharing: the hosts have 2 GPUs and this machine 1 GPU: "):
        check_gpus(experiment(TORCH))


@pytest.mark.parametrize("compute", [{"kind": "replay"}, {"kind": "torch", "device": "cpu"}])
def test_hosts_get_no_gpu_without_gpu_compute(monkeypatch: pytest.MonkeyPatch, compute: dict[str, Any]) -> None:
    machine(monkeypatch, "GPU-0")
    assert uuids_of(experiment(compute, hosts=4)) is None


def test_auto_is_the_cpu_where_there_is_no_gpu_and_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert uuids_of(experiment({**TORCH, "device": "auto"})) is None
    with pytest.raises(MissingError, match=r"^compute\.device: cuda, and this machine offers no NVIDIA GPU "):
        check_gpus(experiment(TORCH))


def test_gpus_without_uuid_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0", None)
    with pytest.raises(MissingError, match=r"by UUID, .*: pip install 'wanbed\[gpu\]'$"):
        check_gpus(experiment(TORCH))


def test_sharing_the_cpu_or_replayed_compute_means_nothing() -> None:
    with pytest.raises(InputError, match=r"compute: sharing: only GPUs are shared"):
        experiment({"kind": "torch", "device": "cpu", "sharing": 2})
    with pytest.raises(InputError, match=r"compute: sharing: only torch computes on a device"):
        experiment({"kind": "replay", "sharing": 2})


def summed_by_nccl(hosts: int, **compute: Any) -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": hosts}]},
        "model": "gpt-tiny",
        "compute": {"kind": "torch", **compute},
        "training": {"stages": 1, "pipelines": 2, "precision": "fp32"},
        "variants": [{"name": "nccl", "schedule": "gpipe", "transport": {"all_reduce": "nccl"}}],
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_nccl_needs_a_separate_gpu_per_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0", "GPU-1")
    assert uuids_of(summed_by_nccl(2, device="cuda")) == {"east-0": ("GPU-0",), "east-1": ("GPU-1",)}
    machine(monkeypatch, "GPU-0")
    with pytest.raises(MissingError, match=r"^variants\.0\.transport\.all_reduce: .* the 2 of stage 0 share 1 here: "):
        check_gpus(summed_by_nccl(2, device="cuda", sharing=2))
    machine(monkeypatch)
    with pytest.raises(MissingError, match=r"all_reduce: .* this machine offers none: bring two or more, or leave"):
        check_gpus(summed_by_nccl(2))
