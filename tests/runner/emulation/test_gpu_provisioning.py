import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.emulation import gpu_provisioning
from wanbed.runner.emulation.gpu_provisioning import check_gpus, provision_gpus, resolved_device
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.testbed.gpus import gpus as machine_listing
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.gpus.nvml import NvmlError

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
    offer(monkeypatch, *(Gpu("NVIDIA H200", "570", uuid) for uuid in uuids), visible=visible)


def offer(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, visible: str | None = None, files: tuple[str, ...] = ()) -> None:
    for module in (gpu_provisioning, machine_listing):
        monkeypatch.setattr(module, "machine_gpus", lambda: gpus)
    monkeypatch.setattr(gpu_provisioning, "device_files", lambda: files)
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


def with_program(compute: dict[str, Any]) -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "compute": compute,
        "variants": [{"name": "mine", "program": {"command": ["python", "train.py"]}}],
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_hosts_of_a_program_own_gpus_though_nothing_of_wanbed_s_computes_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, "GPU-0", "GPU-1")
    assert uuids_of(with_program({})) == {"east-0": ("GPU-0",), "east-1": ("GPU-1",)}
    check_gpus(with_program({}))
    assert uuids_of(with_program({"kind": "torch", "device": "cpu"})) is None


def test_a_program_needs_as_many_gpus_as_its_hosts_unless_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0")
    with pytest.raises(InputError, match=r"^compute\.sharing: the hosts have 2 GPUs and this machine 1 GPU: "):
        check_gpus(with_program({}))
    assert uuids_of(with_program({"kind": "torch", "sharing": 2})) == {"east-0": ("GPU-0",), "east-1": ("GPU-0",)}


def test_auto_is_the_cpu_where_there_is_no_gpu_and_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert uuids_of(experiment({**TORCH, "device": "auto"})) is None
    with pytest.raises(MissingError, match=r"^compute\.device: cuda, and this machine offers no NVIDIA GPU "):
        check_gpus(experiment(TORCH))


def test_gpus_without_uuid_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0", None)
    with pytest.raises(MissingError, match=r"by UUID, .*: pip install 'wanbed\[gpu\]'$"):
        check_gpus(experiment(TORCH))


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_nobody_lists_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    offer(monkeypatch, files=("/dev/nvidia0",))
    with pytest.raises(
        MissingError, match=rf"^compute\.device: {device}, and /dev/nvidia0 shows a GPU that neither NVML"
    ):
        check_gpus(experiment({**TORCH, "device": device}))


def test_a_gpu_without_permission_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Gpu("GPU 0", "570", fault="NVML: Insufficient Permissions")
    offer(monkeypatch, refused, *(Gpu("NVIDIA H200", "570", f"GPU-{place}") for place in (1, 2)))
    assert uuids_of(experiment(TORCH)) == {"east-0": ("GPU-1",), "east-1": ("GPU-2",)}


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_gpus_that_all_have_faults_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    offer(monkeypatch, Gpu("GPU 0", "570", fault="NVML: Insufficient Permissions"))
    with pytest.raises(
        MissingError, match=r"no GPU here can be used: GPU 0 \(NVML: Insufficient Permissions\); or give"
    ):
        check_gpus(experiment({**TORCH, "device": device}))


def test_each_mig_instance_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, *(Gpu("NVIDIA H100 MIG 1g.10gb", "570", f"MIG-{name}", parent="GPU-0") for name in "ab"))
    (point,) = experiment(TORCH).points()
    found = provision_gpus(point)
    assert found is not None
    assert found.uuids == {"east-0": ("MIG-a",), "east-1": ("MIG-b",)}
    assert {found.chip("east-0", 0), found.chip("east-1", 0)} == {"GPU-0"}


def test_every_process_is_given_the_device_that_was_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (point,) = experiment({**TORCH, "device": "auto"}).points()
    machine(monkeypatch, "GPU-0", "GPU-1")
    assert resolved_device(point, provision_gpus(point)) == "cuda"
    machine(monkeypatch)
    assert resolved_device(point, provision_gpus(point)) == "cpu"
    (replayed,) = experiment({"kind": "replay"}).points()
    assert resolved_device(replayed, None) is None


class FreeMemory:
    """An NVML session in which every GPU has so much memory free."""

    def __init__(self, free_bytes: int | None) -> None:
        self.free_bytes = free_bytes

    def __call__(self) -> "FreeMemory":
        return self

    def __enter__(self) -> "FreeMemory":
        if self.free_bytes is None:
            raise NvmlError("NVML: Driver Not Loaded")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reading(self, _: str) -> Any:
        return SimpleNamespace(memory_free_bytes=self.free_bytes)


def six_ranks(model: str) -> Experiment:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 3}],
            "wan": {"latency": "20ms"},
        },
        "model": model,
        "compute": {"kind": "torch", "device": "cuda", "sharing": 6},
        "training": {"microbatches": 8},
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_ranks_that_do_not_fit_on_their_gpu_are_refused_with_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Gpu("NVIDIA H200", "570", "GPU-0", 140 * 2**30))
    monkeypatch.setattr(machine_listing, "open_nvml", FreeMemory(139 * 2**30))
    check_gpus(six_ranks("gpt-a"))
    with pytest.raises(
        InputError,
        match=r"^variants\.0: 6 processes on NVIDIA H200 \(GPU-0\) need 2\d\d\.\d GiB "
        r"\(weights 19\.6, gradients 19\.6, optimizer 157\.0, "
        r"activations .*, contexts 3\.6, .*\), and it has 140\.0 GiB, of which 139\.0 are free: let",
    ):
        check_gpus(six_ranks("gpt-b"))


def test_memory_that_other_programs_use_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Gpu("NVIDIA H200", "570", "GPU-0", 140 * 2**30))
    monkeypatch.setattr(machine_listing, "open_nvml", FreeMemory(40 * 2**30))
    with pytest.raises(InputError, match=r"it has 140\.0 GiB, of which 40\.0 are free: "):
        check_gpus(six_ranks("gpt-a"))


def test_memory_that_nobody_reports_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Gpu("NVIDIA H200", "570", "GPU-0"))
    monkeypatch.setattr(machine_listing, "open_nvml", FreeMemory(None))
    check_gpus(six_ranks("gpt-b"))


def test_ranks_that_do_not_fit_into_the_machines_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"topology": {"datacenters": [{"name": "east", "hosts": 6}]}, "model": "gpt-b"}
    on_cpu = parse_experiment({**document, "compute": {"kind": "torch", "device": "cpu"}}, "exp.yaml", Path())
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**20}[name])
    with pytest.raises(
        InputError, match=r"^variants\.0: 6 processes on the CPU need 2\d\d\.\d GiB .* has 4\.0 GiB: let"
    ):
        check_gpus(on_cpu)


def test_sharing_the_cpu_or_replayed_compute_means_nothing() -> None:
    with pytest.raises(InputError, match=r"compute: sharing: only GPUs are shared"):
        experiment({"kind": "torch", "device": "cpu", "sharing": 2})
    with pytest.raises(InputError, match=r"compute: sharing: only torch computes on a device"):
        experiment({"kind": "replay", "sharing": 2})


def summed_by_nccl(hosts: int, *, gpus_per_host: int = 1, all_reduce: str = "nccl", **compute: Any) -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": hosts, "gpus_per_host": gpus_per_host}]},
        "model": "gpt-tiny",
        "compute": {"kind": "torch", **compute},
        "training": {"stages": 1, "pipelines": 2, "precision": "fp32"},
        "variants": [{"name": "nccl", "schedule": "gpipe", "transport": {"all_reduce": all_reduce}}],
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_nccl_needs_a_separate_gpu_per_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0", "GPU-1")
    assert uuids_of(summed_by_nccl(2, device="cuda")) == {"east-0": ("GPU-0",), "east-1": ("GPU-1",)}
    machine(monkeypatch, "GPU-0")
    with pytest.raises(MissingError, match=r"^variants\.0\.transport\.all_reduce: .* the 2 of stage 0 share 1 here: "):
        check_gpus(summed_by_nccl(2, device="cuda", sharing=2))
    offer(monkeypatch, *(Gpu("MIG", None, f"MIG-{name}", parent="GPU-0") for name in "ab"))
    with pytest.raises(MissingError, match=r"the 2 of stage 0 share 1 here: bring more GPUs, give nccl-shared to try"):
        check_gpus(summed_by_nccl(2, device="cuda"))
    machine(monkeypatch)
    with pytest.raises(MissingError, match=r"all_reduce: .* this machine offers none: bring two or more, or leave"):
        check_gpus(summed_by_nccl(2))


def test_nccl_is_tried_on_a_shared_gpu_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "GPU-0")
    shared = {"all_reduce": "nccl-shared", "device": "cuda", "sharing": 2}
    assert uuids_of(summed_by_nccl(2, **shared)) == {"east-0": ("GPU-0",), "east-1": ("GPU-0",)}
    with pytest.raises(
        MissingError, match=r"nccl-shared needs a GPU for each replica on a host, and two of stage 0 on"
    ):
        check_gpus(summed_by_nccl(1, gpus_per_host=2, **shared))
