"""Measure one rank's device: its busy times, their check by torch.profiler, and the bytes staged."""

from collections.abc import Callable

from wanbed.results.records.span_log import DeviceRecord
from wanbed.workloads.compute.device.determinism import kernels_are_deterministic
from wanbed.workloads.compute.device.staging import Staged
from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.compute.profiler_check import ProfilerCheck
from wanbed.workloads.compute.span_timer import create_timer


class DeviceMeasurement:
    """Times every action of a rank on ``device``. torch.profiler also records ``check_iteration`` unless it is None."""

    def __init__(self, device: TorchDevice, check_iteration: int | None = None) -> None:
        self._runtime = device.runtime
        self._timer = create_timer(device)
        self._check_iteration = check_iteration
        self._check: ProfilerCheck | None = None
        self._checked_ns: tuple[int, int] | None = None

    def begin(self, iteration: int) -> None:
        """Begin ``iteration``, and the profiler's recording if it is the one to check."""
        if iteration == self._check_iteration:
            self._check = ProfilerCheck(on_device=self._runtime is not None)
            self._check.begin()

    def timed(self, kind: str, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``, a span of that kind. Return when the host began it and when it saw the end."""
        if self._check is None:
            return self._timer.timed(work)
        check = self._check

        def marked() -> None:
            with check.mark(kind):
                work()

        return self._timer.timed(marked)

    def resolve(self) -> list[tuple[int, int]]:
        """Return the busy intervals of the device since the last call, one for each ``timed``."""
        intervals = self._timer.resolve()
        if self._check is not None:
            spans_ns = sum(end_ns - start_ns for start_ns, end_ns in intervals)
            self._checked_ns = spans_ns, self._check.end()
            self._check = None
        return intervals

    def record(self, to_host: Staged, to_device: Staged) -> DeviceRecord:
        """Return all measurements so far, with the messages copied in both directions."""
        spans_ns, profiler_ns = self._checked_ns or (0, 0)
        return DeviceRecord(
            device="cpu" if self._runtime is None else self._runtime.device,
            model="cpu" if self._runtime is None else self._runtime.model,
            to_host_bytes=to_host.size_bytes,
            to_host_ns=to_host.copy_ns,
            to_device_bytes=to_device.size_bytes,
            to_device_ns=to_device.copy_ns,
            clock_error_ns=self._timer.clock_error_ns,
            check_iteration=None if self._checked_ns is None else self._check_iteration,
            check_spans_ns=spans_ns,
            check_profiler_ns=profiler_ns,
            deterministic=kernels_are_deterministic(),
        )
