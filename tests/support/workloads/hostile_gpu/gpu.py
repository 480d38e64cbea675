"""A GPU played by the CPU at its worst: whatever CUDA may do late, or in another order, this does.

- Kernels and copies are only enqueued. They run when the host waits, in one of the orders that CUDA allows.
- Results are NaN until their kernel has run. Freed memory goes to the next allocation of the same stream at once.
- The time between two events is an error until the GPU has passed both.
- Operators refuse tensors of the host, and every wait of the host is counted.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from tests.support.workloads.hostile_gpu.kernels import DEVICE, Kernels, OperatorMode, TensorMode
from tests.support.workloads.hostile_gpu.memory import Arena
from tests.support.workloads.hostile_gpu.streams import Engine, HostileEvent, HostileStream, Mark, Order
from tests.support.workloads.hostile_gpu.without_modes import WithoutModes
from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from wanbed.workloads.compute.device.torch_device import GpuDevice

MIB = 1 << 20

_KERNEL_NS = 1_000
_LOOK_NS = 100
_HOST_BEGAN_NS = 5_000_000_000
_GPU_BEGAN_NS = 1_000_000_000


class HostileGpu(DeviceRuntime):
    """The GPU. Within ``with gpu:`` a thread's torch computes on it what is on ``gpu.torch_device``.

    ``speed`` is that of its clock, which is far from the host's. After each wait the host wakes up ``wake_up_ns`` late.
    ``meanwhile`` is called whenever the host waits, as another thread would run then. ``waits`` has every wait of the
    host: ``event``; ``value`` or ``copy`` where an operator makes it wait; ``pinned`` where memory is page-locked.
    """

    model = "a CPU that plays a hostile GPU"
    torch_device = DEVICE

    def __init__(
        self,
        order: Order = Order.LAZY,
        seed: int = 0,
        *,
        speed: float = 1.0,
        device: str = "GPU-hostile",
        memory_bytes: int = 8 * MIB,
    ) -> None:
        self.device = device
        self.now_ns = _HOST_BEGAN_NS
        self.wake_up_ns = 0
        self.waits: list[str] = []
        self.copied_bytes: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._speed = speed
        with WithoutModes():
            self._memory, self._pinned = Arena(memory_bytes), Arena(memory_bytes)
        self._engine = Engine(order, seed, self.clock_ns)
        self._kernels = Kernels(self._memory, self._pinned, self._enqueue, self._new, self._synchronize)
        self._default = self.new_stream()
        self._of_thread = threading.local()

    def __enter__(self) -> "HostileGpu":
        modes: list[ExitStack] = self._of_thread.__dict__.setdefault("modes", [])
        stack = ExitStack()
        if not modes:
            stack.enter_context(TensorMode(self._kernels))
            stack.enter_context(OperatorMode(self._kernels))
        modes.append(stack)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._of_thread.modes.pop().close()

    def clock_ns(self) -> float:
        """Return the time of the GPU's own clock."""
        return (self.now_ns - _HOST_BEGAN_NS) * self._speed + _GPU_BEGAN_NS

    def host_clock_ns(self) -> int:
        """Return the time of the host's clock. Every look takes 100 ns."""
        self.now_ns += _LOOK_NS
        return self.now_ns

    @property
    def computing(self) -> bool:
        """Whether a kernel of the default stream has not run yet."""
        return self._default.has_work()

    def keep_busy(self, duration_ns: int) -> None:
        """Enqueue a kernel of that duration on the thread's stream."""
        self._current().enqueue(lambda: self._spend(duration_ns))

    def compute_stream(self) -> HostileStream:
        return self._current()

    def new_stream(self) -> HostileStream:
        return HostileStream(self._engine, self._copy)

    @contextmanager
    def use(self, stream: DeviceStream) -> Iterator[None]:
        before, self._of_thread.stream = self._current(), stream
        try:
            with self:
                yield
        finally:
            self._of_thread.stream = before

    def event(self) -> DeviceEvent:
        return HostileEvent(self._engine, lambda mark: self._sleep(mark, "event"))

    def pinned(self, size_bytes: int) -> Tensor:
        # CUDA may wait for all kernels before it locks pages.
        self._synchronize("pinned")
        return self.scratch(size_bytes)

    def scratch(self, size_bytes: int) -> Tensor:
        with WithoutModes(), self._engine.lock:
            return self._pinned.allocate((size_bytes,), (1,), torch.uint8, None)

    def empty(self, elements: int, dtype: torch.dtype, *, filled_on: DeviceStream, used_on: DeviceStream) -> Tensor:
        assert isinstance(used_on, HostileStream)
        with self.use(filled_on):
            tensor = self._new((elements,), (1,), dtype)
        self._memory.delay_free(tensor, used_on.enqueue)
        return tensor

    def _current(self) -> HostileStream:
        stream: HostileStream = getattr(self._of_thread, "stream", self._default)
        return stream

    def _new(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        stream = self._current()
        with WithoutModes(), self._engine.lock:
            tensor = self._memory.allocate(size, stride, dtype, stream)
            pointer = self._memory.pointer(tensor.detach())
        self._engine.meanwhile()
        if tensor.numel():
            stream.enqueue(lambda: _poison(pointer))
        return tensor

    def _enqueue(self, kernel: Callable[[], object]) -> None:
        def run() -> None:
            with torch.no_grad():
                kernel()
            self._spend(_KERNEL_NS)

        self._engine.meanwhile()
        self._current().enqueue(run)

    def _copy(self, stream: HostileStream, target: Tensor, source: Tensor) -> None:
        with WithoutModes():
            on_host = [each for each in (target, source) if each not in self._memory]
            to, of = (
                next((memory.pointer(each) for memory in (self._memory, self._pinned) if each in memory), each)
                for each in (target.detach(), source.detach())
            )

        def copy() -> None:
            to.copy_(of)
            self.copied_bytes.append(of.nbytes)
            self._spend(_KERNEL_NS + of.nbytes)

        stream.enqueue(copy)
        if any(each not in self._pinned for each in on_host):
            self._wait_for(stream, "copy")

    def _synchronize(self, why: str) -> None:
        self._wait_for(self._current(), why)

    def _wait_for(self, stream: HostileStream, why: str) -> None:
        event = HostileEvent(self._engine, lambda mark: self._sleep(mark, why))
        stream.record(event)
        event.wait()

    def _sleep(self, mark: Mark, why: str) -> None:
        self.meanwhile()
        self._engine.run_until(mark)
        self.waits.append(why)
        self.now_ns += self.wake_up_ns

    def _spend(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


def hostile_device(gpu: HostileGpu) -> GpuDevice:
    """Return the device that ``create_device`` returns on a machine with that GPU."""
    return GpuDevice(gpu.torch_device, gpu)


def _poison(tensor: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.fill_(torch.nan)
    else:
        tensor.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max)
