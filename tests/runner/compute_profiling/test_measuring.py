import pytest
import torch

from tests.support.present import present
from wanbed.ground.errors import MissingError
from wanbed.runner.compute_profiling.device_at_hand import CpuAtHand, DeviceAtHand
from wanbed.runner.compute_profiling.measuring import Measurement
from wanbed.runner.compute_profiling.task import PromptsTask, StagesTask, profile_task
from wanbed.workloads.compute.device.torch_device import choose_kernels
from wanbed.workloads.profiles.compute_profile import DeviceState
from wanbed.workloads.profiles.device_measurements import StageDriver
from wanbed.workloads.profiles.repeats import Pace

PACE = Pace(repeats=7, warmup_ns=0, repeat_ns=0)

TOY = "hidden=16,context=8,heads=2,vocabulary=32"


class Gpu(DeviceAtHand):
    kind, name, driver = "cuda", "NVIDIA H200", "570"
    state_interval_s = 1.0

    def free_bytes(self) -> int:
        return 2**40

    def state(self) -> DeviceState:
        return DeviceState(clock_hz=1, memory_clock_hz=1, temperature_c=1, power_w=1.0)


def stages_task() -> StagesTask:
    task = profile_task([TOY], "cpu")
    assert isinstance(task, StagesTask)
    return StagesTask(task.models, "bf16", (8, 16))


def test_a_profile_records_device_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    profile = Measurement(CpuAtHand(), PACE, lines.append).stages(stages_task())
    assert (profile.precision, profile.device) == ("bf16", CpuAtHand().name)
    assert profile.conditions is not None
    assert profile.conditions.versions["torch"] == torch.__version__
    assert profile.conditions.ceiling.size in {8, 16}
    assert (profile.conditions.threads, profile.conditions.driver) == (1, None)
    for position in ("first", "middle", "last"):
        assert f"{TOY}, {position} stage of 1 layer: 14 repeats" in lines


class Slowing(CpuAtHand):
    """A device whose clock falls with every look at it, and that is throttled now and then."""

    state_interval_s = 0.001

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def state(self) -> DeviceState:
        self.looks += 1
        throttled = ("power cap",) if self.looks % 3 == 0 else ()
        return DeviceState(
            clock_hz=10**9 - self.looks, memory_clock_hz=None, temperature_c=None, power_w=None, throttled=throttled
        )


def test_clocks_are_sampled_while_figures_are_measured() -> None:
    device = Slowing()
    conditions = present(Measurement(device, PACE, lambda _: None).stages(stages_task()).conditions)
    assert conditions.during is not None
    assert conditions.ceiling.clocks is not None
    assert conditions.during.samples >= 6
    assert conditions.during.lowest_hz == 10**9 - device.looks + 1
    assert conditions.throttled == ("power cap",)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_choice_of_kernels_is_recorded_and_holds_while_stages_are_measured(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[bool] = set()
    real = StageDriver.passes

    def passes(self: StageDriver, count: int) -> dict[str, int]:
        seen.add(torch.are_deterministic_algorithms_enabled())
        return real(self, count)

    monkeypatch.setattr(StageDriver, "passes", passes)
    try:
        profile = Measurement(CpuAtHand(), PACE, lambda _: None, deterministic=deterministic).stages(stages_task())
    finally:
        choose_kernels(deterministic=False)
    assert profile.conditions is not None
    assert profile.conditions.deterministic is deterministic
    assert seen == {deterministic}


def test_prompts_make_a_profile_of_the_layers_that_were_measured() -> None:
    task = profile_task(["llama-tiny"], "cpu", layers=2, prompts=[4, 8, 16], chunk=3)
    assert isinstance(task, PromptsTask)
    profile = Measurement(CpuAtHand(), PACE, lambda _: None).prompts(task)
    assert profile.model.layers == 2
    assert [prompt.tokens for prompt in profile.prompts] == [4, 8, 16]
    for prompt in profile.prompts:
        assert prompt.measured is not None
        assert prompt.measured.median_ns == prompt.time_ns
    assert [(chunk.tokens, chunk.prior_tokens) for chunk in profile.chunks] == [(3, 4), (3, 8)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch sees a GPU")
def test_a_gpu_that_torch_does_not_see_is_refused() -> None:
    with pytest.raises(
        MissingError, match=r"^NVIDIA H200 is there, and torch .* does not see it: pip install a torch "
    ):
        Measurement(Gpu(), PACE, lambda _: None)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), r"^memory: the GPU's memory ran out: give fewer --layers"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes"),
            r"^memory: the machine's memory ran out: give fewer --layers",
        ),
    ],
)
def test_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, fault: Exception, text: str) -> None:
    def fail(_: StageDriver, __: int) -> dict[str, int]:
        raise fault

    monkeypatch.setattr(StageDriver, "passes", fail)
    with pytest.raises(MissingError, match=text):
        Measurement(CpuAtHand(), PACE, lambda _: None).stages(stages_task())


def test_any_other_fault_of_torch_is_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: StageDriver, __: int) -> dict[str, int]:
        raise RuntimeError("expected scalar type Float")

    monkeypatch.setattr(StageDriver, "passes", fail)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        Measurement(CpuAtHand(), PACE, lambda _: None).stages(stages_task())
