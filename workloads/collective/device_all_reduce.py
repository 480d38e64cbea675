"""All-reduce by torch's collectives, on the device that holds the gradients. Nothing is staged in host memory.

A thread runs the collective, so that the rank's loop continues to handle events.
"""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from wanbed.workloads.collective.collective_config import NCCL, CollectiveConfig, check_devices, collective_environment
from wanbed.workloads.collective.rendezvous_store import open_store
from wanbed.workloads.transport.event import DeviceSummed, Failed
from wanbed.workloads.transport.peer import TransportError

_LOOK_S = 0.0002
"""The time between two looks at a collective, which is also the resolution of its measured duration."""
_SETTLE_S = 5.0
"""The time for which a GPU may still run a collective that NCCL calls complete, as it does one that has failed."""

Report = Callable[[DeviceSummed | Failed], None]


def check_backend(backend: str) -> None:
    """Raise ValueError, one line with a remedy, unless torch has that backend and, for NCCL, a GPU."""
    if not dist.is_available() or not dist.is_backend_available(backend):
        name = "NCCL" if backend == NCCL else backend
        raise ValueError(
            f"transport.all_reduce: this torch ({torch.__version__}) has no {name}: install one that is built for "
            "CUDA, or leave all_reduce out"
        )
    if backend == NCCL and not torch.cuda.is_available():
        raise ValueError("transport.all_reduce: NCCL sums between GPUs, and torch sees none: leave all_reduce out")


class DeviceAllReduce:
    """One rank's side of the all-reduce of ``gradients``, a tensor on the device that ``device`` names.

    The constructor waits until all replicas have constructed theirs, for ``config.timeout_ns`` at most. ``report`` is
    called from another thread at the end of each all-reduce. Raises ValueError if torch or the devices cannot do it,
    TransportError if the rendezvous of the replicas fails.
    """

    def __init__(self, config: CollectiveConfig, gradients: Tensor, device: str, report: Report) -> None:
        check_backend(config.backend)
        os.environ.update(collective_environment(config))
        self._config = config
        self._gradients = gradients
        self._report = report
        self._thread: Thread | None = None
        timeout = timedelta(microseconds=config.timeout_ns / 1000)
        try:
            store = open_store(
                config.store_address,
                config.store_port,
                members=len(config.hosts),
                is_server=config.position == 0,
                timeout=timeout,
            )
            if config.backend == NCCL:
                self._check_devices(store, device)
            dist.init_process_group(
                config.backend,
                store=PrefixStore("all-reduce", store),
                rank=config.position,
                world_size=len(config.hosts),
                # Later than this object's own limit, which ends in a line of its own.
                timeout=timedelta(microseconds=2 * config.all_reduce_timeout_ns / 1000),
            )
        except (RuntimeError, OSError) as fault:
            raise self._lost(fault) from None

    def start(self) -> int:
        """Start the all-reduce, in place. Return its size in bytes. Do not use the gradients before ``report``."""
        self._thread = Thread(target=self._sum, name="device all-reduce", daemon=True)
        self._thread.start()
        return self._gradients.nbytes

    def close(self) -> None:
        """Leave the process group. All replicas must have completed the same number of all-reduces."""
        if self._thread is not None:
            # It has reported, and may still hold the collective, which must not outlive the process group.
            self._thread.join()
        dist.destroy_process_group()

    def _sum(self) -> None:
        try:
            work = dist.all_reduce(self._gradients, async_op=True)
            assert work is not None
            limit_s = self._config.all_reduce_timeout_ns / 1e9
            wait_until(work.is_completed, limit_s, f"not done within {limit_s:g} s")
            # Gloo raises its error here. With NCCL this thread's stream waits from now on.
            work.wait()
            if self._gradients.is_cuda:
                done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                done.record(torch.cuda.current_stream(self._gradients.device))
                wait_until(done.query, _SETTLE_S, "NCCL has failed, a replica may be lost")
        except Exception as fault:
            # No other code sees an error of this thread, and the rank would wait for the sum for ever.
            self._report(Failed(self._lost(fault)))
        else:
            self._report(DeviceSummed())

    def _check_devices(self, store: Store, device: str) -> None:
        store.set(_key(self._config.position), device)
        devices = [store.get(_key(position)).decode() for position in range(len(self._config.hosts))]
        check_devices(devices, self._config.hosts, shares_gpus=self._config.shares_gpus)

    def _lost(self, fault: Exception) -> TransportError:
        line = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        return TransportError(f"the all-reduce over {', '.join(self._config.hosts)} failed: {line}")


def wait_until(done: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    """Return as soon as ``done`` is true. Raise TimeoutError with ``otherwise`` if it is not within ``limit_s``."""
    end_s = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(otherwise)
        time.sleep(_LOOK_S)


def _key(position: int) -> str:
    return f"device-{position}"
