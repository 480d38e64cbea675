"""Readings of several machines add up: counters of a trunk, and GPUs."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.testbed.gpus.gpus import GpuReader, gpu_memories
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.rack.driver.rack_readings import RackGpus, merged_counters
from wanbed.testbed.rack.machine_handle import MachineLostError


def test_each_machine_has_its_own_part_of_a_trunk() -> None:
    one = PortCounters("east", "west", Counters(100, 2, 30, 1), {("east-0", "west-0"): Counters(100, 2, 30, 1)})
    other = PortCounters("east", "west", Counters(50, 1, 0, 2), {("east-1", "west-0"): Counters(50, 1, 0, 2)})
    back = PortCounters("west", "east", Counters(7, 1, 0, 0), {("west-0", "east-0"): Counters(7, 1, 0, 0)})
    merged = merged_counters([[one], [other], [back]])
    assert merged == [
        PortCounters(
            "east",
            "west",
            Counters(150, 3, 30, 3),
            {("east-0", "west-0"): Counters(100, 2, 30, 1), ("east-1", "west-0"): Counters(50, 1, 0, 2)},
        ),
        back,
    ]


def test_packets_are_unknown_if_one_machine_does_not_know_them() -> None:
    known = PortCounters("east", "west", Counters(1, 1, 0, 0), {})
    unknown = PortCounters("east", "west", Counters(1, None, 0, 0), {})
    (merged,) = merged_counters([[known], [unknown]])
    assert merged.total == Counters(2, None, 0, 0)


UUIDS = {"a": ["GPU-1", "GPU-2"], "b": ["GPU-3", "GPU-4"]}


class Answer:
    def __init__(self, machine: "ReadMachine", uuids: Sequence[str]) -> None:
        self._machine, self._uuids = machine, uuids

    def result(self, timeout_s: float | None = None) -> Any:
        if self._machine.gone:
            raise MachineLostError("a has left the rack")
        if self._machine.reader is None:
            self._machine.reader = GpuReader(self._uuids)
        return self._machine.reader.read(), tuple(self._machine.reader.faults)


class ReadMachine:
    """A machine whose GPUs are read in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reader: GpuReader | None = None
        self.gone = False

    def call(self, method: str, *arguments: Any) -> Any:
        return self.start_call(method, *arguments).result()

    def start_call(self, method: str, *arguments: Any) -> Answer:
        assert method == "read_gpus"
        return Answer(self, *arguments)


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> FakePynvml:
    fake = FakePynvml([FakeGpu(f"GPU-{number}") for number in (1, 2, 3, 4)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_every_gpu_is_read_on_its_machine(binding: FakePynvml) -> None:
    gpus = RackGpus([ReadMachine("a"), ReadMachine("b"), ReadMachine("without")], UUIDS)
    assert [uuid for uuid, _ in gpus.read()] == ["GPU-1", "GPU-2", "GPU-3", "GPU-4"]
    assert gpus.faults == []
    assert binding.sessions == 2


def test_a_lost_gpu_is_told_with_its_machine_and_the_others_are_still_read(binding: FakePynvml) -> None:
    binding.gpus[2].refuses.add("lost")
    gpus = RackGpus([ReadMachine("a"), ReadMachine("b")], UUIDS)
    for _ in range(2):
        assert [uuid for uuid, _ in gpus.read()] == ["GPU-1", "GPU-2", "GPU-4"]
        assert gpus.faults == ["machine b: GPU-3: NVML: Not Found"]


def test_a_machine_without_nvml_has_a_fault_and_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = RackGpus([ReadMachine("a")], UUIDS)
    assert gpus.read() == []
    (fault,) = gpus.faults
    assert fault.startswith("machine a: ")
    assert "nvidia-ml-py" in fault


def test_a_machine_that_has_gone_ends_the_trial(binding: FakePynvml) -> None:
    machine = ReadMachine("a")
    machine.gone = True
    with pytest.raises(MachineLostError):
        RackGpus([machine], UUIDS).read()


def test_memory_is_that_of_the_gpus_that_report_it(binding: FakePynvml) -> None:
    binding.gpus[1].refuses.add("memory")
    found = gpu_memories(["GPU-1", "GPU-2"])
    assert {uuid: (each.total_bytes, each.free_bytes) for uuid, each in found.items()} == {
        "GPU-1": (141 * 2**30, 140 * 2**30)
    }
