"""Streams and events of a hostile GPU: nothing runs until the host waits, and then in an order chosen before."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from threading import RLock

from torch import Tensor

from tests.support.workloads.hostile_gpu.without_modes import WithoutModes
from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceStream

Work = Callable[[], None]
StartCopy = Callable[["HostileStream", Tensor, Tensor], None]


class Order(Enum):
    """An order in which CUDA may run what is enqueued on several streams.

    - ``LAZY``: only what the host's wait needs, at the last moment.
    - ``EAGER``: that first; then, before the host goes on, all other work.
    - ``COMPUTE_FIRST``: all of the default stream, and of the others only what that and the host's wait need.
    - ``COPIES_FIRST``: every stream but the default one runs whenever the host does anything.
    - ``RANDOM``: any stream that is not blocked, and sometimes several steps while the host does something else.
    """

    LAZY = "lazy"
    EAGER = "eager"
    COMPUTE_FIRST = "compute first"
    COPIES_FIRST = "copies first"
    RANDOM = "random"


class Mark:
    """One recording of an event. ``time_ns`` is on the GPU's clock, None until the GPU has passed it."""

    def __init__(self) -> None:
        self.time_ns: float | None = None


class Engine:
    """Runs the work of all ``streams`` in one order. The first stream is the default one. Any thread may call it.

    ``clock`` is the GPU's.
    """

    def __init__(self, order: Order, seed: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = RLock()
        self.streams: list[HostileStream] = []
        self._order = order
        self._random = Random(seed)

    def run_until(self, mark: Mark) -> None:
        """Run until the GPU has passed the mark. Fail if it never will."""
        with self.lock, WithoutModes():
            while mark.time_ns is None:
                able = [stream for stream in self.streams if stream.can_step()]
                assert able, "the host waits for a mark that the GPU never passes"
                self._next(able, mark).step()
            if self._order is Order.EAGER:
                self._run_all(self.streams)

    def meanwhile(self) -> None:
        """Let the GPU go on while the host does something else."""
        if self._order not in {Order.COPIES_FIRST, Order.RANDOM}:
            return
        with self.lock, WithoutModes():
            if self._order is Order.COPIES_FIRST:
                self._run_all(self.streams[1:])
            else:
                for _ in range(self._random.choice((0, 0, 0, 1, 5, 50))):
                    stream = self._random.choice(self.streams)
                    if stream.can_step():
                        stream.step()

    def _next(self, able: list["HostileStream"], mark: Mark) -> "HostileStream":
        if self._order is Order.RANDOM:
            return self._random.choice(able)
        if self._order is Order.COMPUTE_FIRST and not self.streams[0].is_empty():
            stream = self.streams[0]
        else:
            stream = next(stream for stream in self.streams if stream.will_pass(mark))
        # The stream itself or, if that is blocked, the one that holds it up.
        while (blocking := stream.blocked_by()) is not None:
            stream = next(other for other in self.streams if other.will_pass(blocking))
        return stream

    @staticmethod
    def _run_all(streams: list["HostileStream"]) -> None:
        while able := [stream for stream in streams if stream.can_step()]:
            for stream in able:
                stream.step()


class HostileEvent(DeviceEvent):
    """An event of ``engine``. ``sleep`` makes the host wait for a mark."""

    def __init__(self, engine: Engine, sleep: Callable[[Mark], None]) -> None:
        self._engine = engine
        self._sleep = sleep
        self.mark: Mark | None = None

    def wait(self) -> None:
        assert self.mark is not None, "the host waits for an event that was never recorded"
        self._sleep(self.mark)

    def spin(self) -> None:
        assert self.mark is not None
        self._engine.run_until(self.mark)

    def passed(self) -> bool:
        self._engine.meanwhile()
        # As in CUDA, an event that was never recorded has passed.
        return self.mark is None or self.mark.time_ns is not None

    def since_ns(self, earlier: DeviceEvent) -> float:
        assert isinstance(earlier, HostileEvent)
        times = [None if event.mark is None else event.mark.time_ns for event in (earlier, self)]
        if times[0] is None or times[1] is None:
            raise RuntimeError("CUDA error: device not ready")
        return times[1] - times[0]


class HostileStream(DeviceStream):
    """A stream of ``engine``. ``start_copy`` enqueues a copy, or blocks where CUDA would."""

    def __init__(self, engine: Engine, start_copy: StartCopy) -> None:
        self._engine = engine
        self._start_copy = start_copy
        self._queue: deque[tuple[Work | None, Mark | None]] = deque()
        with engine.lock:
            engine.streams.append(self)

    def record(self, event: DeviceEvent) -> None:
        assert isinstance(event, HostileEvent)
        event.mark = Mark()
        with self._engine.lock:
            self._queue.append((None, event.mark))

    def wait_for(self, event: DeviceEvent) -> None:
        assert isinstance(event, HostileEvent)
        mark = event.mark
        # CUDA waits for the last recording before this call, and not at all if there is none.
        if mark is not None:
            with self._engine.lock:
                self._queue.append((_nothing, mark))

    def copy(self, target: Tensor, source: Tensor) -> None:
        self._start_copy(self, target, source)

    def enqueue(self, work: Work) -> None:
        """Enqueue a kernel or a copy."""
        with self._engine.lock:
            self._queue.append((work, None))

    def has_work(self) -> bool:
        """Return whether a kernel or a copy has not run yet."""
        return any(work is not None for work, _ in self._queue)

    def blocked_by(self) -> Mark | None:
        """Return the mark that the stream's next work waits for, None if it can go on."""
        if self._queue:
            work, mark = self._queue[0]
            if work is not None and mark is not None and mark.time_ns is None:
                return mark
        return None

    def is_empty(self) -> bool:
        """Return whether nothing is enqueued."""
        return not self._queue

    def can_step(self) -> bool:
        """Return whether there is work that waits for nothing."""
        return bool(self._queue) and self.blocked_by() is None

    def will_pass(self, mark: Mark) -> bool:
        """Return whether the mark is recorded on this stream and not yet passed."""
        return any(work is None and recorded is mark for work, recorded in self._queue)

    def step(self) -> None:
        """Run the next work."""
        work, mark = self._queue.popleft()
        if work is not None:
            work()
        elif mark is not None:
            mark.time_ns = self._engine.clock()


def _nothing() -> None:
    """Stand for the work of a wait, which is over once its mark has been passed."""
