"""What telemetry costs a rank that computes: an iteration of gpt-tiny timed bare, and with all that is always on.

Always on are the times of every span, resolved once an iteration, and staging, which on the CPU is the tensor itself.
The two are taken in turns, since a shared machine is not the same from one minute to the next.
"""

import time
from collections.abc import Callable
from statistics import median

from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device.device_measurement import DeviceMeasurement
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind

ROUNDS, SPANS = 41, 33
MICROBATCHES = 16
WORK = TorchWork(
    ComputedStage(stages=2, stage=1, pipelines=1, pipeline=0, microbatches=MICROBATCHES),
    LearningConfig(GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256), 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
)


class Untimed(DeviceMeasurement):
    """Carries out and measures nothing."""

    def timed(self, kind: str, work: Callable[[], None]) -> tuple[int, int]:
        work()
        return 0, 0

    def resolve(self) -> list[tuple[int, int]]:
        return []


def iteration_cpu_s(compute: TorchCompute, iteration: int) -> float:
    """CPU time of one iteration of a last stage: unlike wall time it does not count who else is running."""
    payloads = [memoryview(bytearray(WORK.learning.model.activation_bytes("fp32"))) for _ in range(MICROBATCHES)]
    begin_s = time.thread_time()
    compute.begin(iteration)
    for microbatch, payload in enumerate(payloads):
        compute.arrived(Message(MessageKind.ACTIVATION, microbatch), payload)
        for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
            compute.perform(Action(kind, microbatch))
        message = Message(MessageKind.GRADIENT, microbatch)
        compute.outgoing(message)
        compute.sent(message)
    compute.update()
    compute.resolve()
    return time.thread_time() - begin_s


def test_telemetry_overhead() -> None:
    bare, again, measured = (TorchCompute(WORK, lambda payload: None) for _ in range(3))
    for compute in (bare, again):
        compute._measurement = Untimed(compute._device)
    seconds = [
        [iteration_cpu_s(compute, iteration) for compute in (bare, again, measured)] for iteration in range(ROUNDS)
    ][1:]
    bare_s = median(each[0] for each in seconds)
    noise, ratio = (median(each[other] / each[0] for each in seconds) for other in (1, 2))
    print(f"\nan iteration of {SPANS} spans: {bare_s * 1e3:.1f} ms of CPU time bare, median of {ROUNDS - 1}")
    print(f"measured over bare: {ratio:.4f}; bare over bare, which is what this machine can tell: {noise:.4f}")

    timing = DeviceMeasurement(bare._device)
    begin_s = time.thread_time()
    rounds = 1000
    for _ in range(rounds):
        for _ in range(SPANS):
            timing.timed("forward", lambda: None)
        timing.resolve()
    cost_s = (time.thread_time() - begin_s) / rounds
    share = cost_s / bare_s
    print(f"timing {SPANS} spans and resolving them takes {cost_s * 1e6:.0f} us, {share:.3%} of that iteration")
    assert share < 0.01
