import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.present import present
from tests.support.runner.small_experiment import parsed
from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.emulation import gpu_provisioning
from wanbed.runner.emulation.gpu_provisioning import check_gpus, provision_gpus, resolved_device
from wanbed.runner.resolve.experiment import Experiment
from wanbed.testbed.gpus import gpus as machine_listing
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.gpus.nvml import NvmlError

TORCH = {"kind": "torch", "device": "cuda"}


def experiment(compute: dict[str, Any], hosts: int = 2, **changes: Any) -> Experiment:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": hosts}]},
        "model": "gpt-tiny",
        "compute": compute,
        "training": {"stages": 2, "precision": "fp32"},
    }
    return parsed({**document, **changes})


def with_program(compute: dict[str, Any]) -> Experiment:
    return parsed(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
            "compute": compute,
            "variants": [{"name": "mine", "program": {"command": ["python", "train.py"]}}],
        }
    )


def summed_by_nccl(hosts: int, *, gpus_per_host: int = 1, all_reduce: str = "nccl", **compute: Any) -> Experiment:
    return experiment(
        {"kind": "torch", **compute},
        topology={"datacenters": [{"name": "east", "hosts": hosts, "gpus_per_host": gpus_per_host}]},
        training={"stages": 1, "pipelines": 2, "precision": "fp32"},
        variants=[{"name": "nccl", "schedule": "gpipe", "transport": {"all_reduce": all_reduce}}],
    )


def six_ranks(model: str) -> Experiment:
    return parsed(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 3}],
                "wan": {"latency": "20ms"},
            },
            "model": model,
            "compute": {"kind": "torch", "device": "cuda", "sharing": 6},
            "training": {"microbatches": 8},
        }
    )


def named(*uuids: str | None) -> tuple[Gpu, ...]:
    return tuple(Gpu("NVIDIA H200", "570", uuid) for uuid in uuids)


DENIED = Gpu("GPU 0", "570", fault="NVML: Insufficient Permissions")
MIGS = tuple(Gpu("NVIDIA H100 MIG 1g.10gb", "570", f"MIG-{name}", parent="GPU-0") for name in "ab")

SHARED = {"all_reduce": "nccl-shared", "device": "cuda", "sharing": 2}
"""The settings with which two replicas that NCCL sums share a GPU."""


def offer(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, visible: str | None = None, files: tuple[str, ...] = ()) -> None:
    for module in (gpu_provisioning, machine_listing):
        monkeypatch.setattr(module, "machine_gpus", lambda: gpus)
    monkeypatch.setattr(gpu_provisioning, "device_files", lambda: files)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def uuids_of(one: Experiment) -> dict[str, tuple[str, ...]] | None:
    found = provision_gpus(*one.points())
    return None if found is None else dict(found.uuids)


APART = {"east-0": ("GPU-0",), "east-1": ("GPU-1",)}
TOGETHER = {"east-0": ("GPU-0",), "east-1": ("GPU-0",)}


@pytest.mark.parametrize(
    ("gpus", "visible", "of", "owned"),
    [
        pytest.param(named("GPU-0", "GPU-1", "GPU-2"), None, experiment(TORCH), APART, id="cuda"),
        pytest.param(named("GPU-0", "GPU-1", "GPU-2"), None, experiment({**TORCH, "device": "auto"}), APART, id="auto"),
        pytest.param(
            named("GPU-0", "GPU-1", "GPU-2"),
            "2,1",
            experiment(TORCH),
            {"east-0": ("GPU-2",), "east-1": ("GPU-1",)},
            id="those that this process sees",
        ),
        pytest.param(
            (DENIED, *named("GPU-1", "GPU-2")),
            None,
            experiment(TORCH),
            {"east-0": ("GPU-1",), "east-1": ("GPU-2",)},
            id="those that are permitted",
        ),
        pytest.param(named("GPU-0"), None, experiment({**TORCH, "sharing": 2}), TOGETHER, id="shared as asked for"),
        pytest.param((), None, experiment({**TORCH, "device": "auto"}), None, id="auto without a GPU: the CPU"),
        pytest.param(named("GPU-0"), None, experiment({"kind": "replay"}, hosts=4), None, id="none for a replay"),
        pytest.param(
            named("GPU-0"), None, experiment({"kind": "torch", "device": "cpu"}, hosts=4), None, id="none for the CPU"
        ),
        pytest.param(named("GPU-0", "GPU-1"), None, with_program({}), APART, id="a program's"),
        pytest.param(
            named("GPU-0", "GPU-1"),
            None,
            with_program({"kind": "torch", "device": "cpu"}),
            None,
            id="none for a program beside the CPU",
        ),
        pytest.param(
            named("GPU-0"), None, with_program({"kind": "torch", "sharing": 2}), TOGETHER, id="programs that share"
        ),
        pytest.param(named("GPU-0", "GPU-1"), None, summed_by_nccl(2, device="cuda"), APART, id="one per NCCL replica"),
        pytest.param(
            named("GPU-0"), None, summed_by_nccl(2, **SHARED), TOGETHER, id="NCCL is tried on a shared GPU if asked to"
        ),
    ],
)
def test_hosts_own_the_machines_gpus(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[Gpu, ...],
    visible: str | None,
    of: Experiment,
    owned: dict[str, tuple[str, ...]] | None,
) -> None:
    offer(monkeypatch, *gpus, visible=visible)
    assert uuids_of(of) == owned


TOO_FEW = r"^compute\.sharing: the hosts have 2 GPUs and this machine 1 GPU: "


@pytest.mark.parametrize(
    ("gpus", "of", "error", "text"),
    [
        (named("GPU-0"), experiment(TORCH), InputError, TOO_FEW),
        (named("GPU-0"), with_program({}), InputError, TOO_FEW),
        (
            (),
            experiment(TORCH),
            MissingError,
            r"^compute\.device: cuda, and this machine offers no NVIDIA GPU ",
        ),
        (named("GPU-0", None), experiment(TORCH), MissingError, r"by UUID, .*: pip install 'wanbed\[gpu\]'$"),
        *(
            (
                (DENIED,),
                experiment({**TORCH, "device": device}),
                MissingError,
                r"no GPU here can be used: GPU 0 \(NVML: Insufficient Permissions\); or give",
            )
            for device in ("auto", "cuda")
        ),
        (
            named("GPU-0"),
            summed_by_nccl(2, device="cuda", sharing=2),
            MissingError,
            r"^variants\.0\.transport\.all_reduce: .* the 2 of stage 0 share 1 here: ",
        ),
        (
            MIGS,
            summed_by_nccl(2, device="cuda"),
            MissingError,
            "the 2 of stage 0 share 1 here: bring more GPUs, give nccl-shared to try",
        ),
        (
            (),
            summed_by_nccl(2),
            MissingError,
            "all_reduce: .* this machine offers none: bring two or more, or leave",
        ),
        (
            named("GPU-0"),
            summed_by_nccl(1, gpus_per_host=2, **SHARED),
            MissingError,
            "nccl-shared needs a GPU for each replica on a host, and two of stage 0 on",
        ),
    ],
)
def test_a_machine_without_the_gpus_that_are_needed_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...], of: Experiment, error: type[Exception], text: str
) -> None:
    offer(monkeypatch, *gpus)
    with pytest.raises(error, match=text):
        check_gpus(of)


def test_hosts_of_a_program_own_gpus_though_nothing_of_wanbed_s_computes_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, *named("GPU-0", "GPU-1"))
    check_gpus(with_program({}))


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_nobody_lists_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    offer(monkeypatch, files=("/dev/nvidia0",))
    with pytest.raises(
        MissingError, match=rf"^compute\.device: {device}, and /dev/nvidia0 shows a GPU that neither NVML"
    ):
        check_gpus(experiment({**TORCH, "device": device}))


def test_each_mig_instance_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, *MIGS)
    found = present(provision_gpus(*experiment(TORCH).points()))
    assert found.uuids == {"east-0": ("MIG-a",), "east-1": ("MIG-b",)}
    assert {found.chip("east-0", 0), found.chip("east-1", 0)} == {"GPU-0"}


def test_every_process_is_given_the_device_that_was_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (point,) = experiment({**TORCH, "device": "auto"}).points()
    for gpus, device in ((named("GPU-0", "GPU-1"), "cuda"), ((), "cpu")):
        offer(monkeypatch, *gpus)
        assert resolved_device(point, provision_gpus(point)) == device
    assert resolved_device(*experiment({"kind": "replay"}).points(), None) is None


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
    on_cpu = parsed({**document, "compute": {"kind": "torch", "device": "cpu"}})
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**20}[name])
    with pytest.raises(
        InputError, match=r"^variants\.0: 6 processes on the CPU need 2\d\d\.\d GiB .* has 4\.0 GiB: let"
    ):
        check_gpus(on_cpu)


def test_sharing_the_cpu_or_replayed_compute_means_nothing() -> None:
    with pytest.raises(InputError, match=r"compute\.sharing: only GPUs are shared"):
        experiment({"kind": "torch", "device": "cpu", "sharing": 2})
    with pytest.raises(InputError, match=r"compute\.sharing: only torch computes on a device"):
        experiment({"kind": "replay", "sharing": 2})
