"""All-reduce by torch's own collectives, where the gradients lie: nothing is staged, and the rank's loop goes on."""

import os
from collections.abc import Callable
from datetime import timedelta
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from workloads.baselines.rendezvous_store import open_store
from workloads.collective.collective_config import NCCL, CollectiveConfig, check_devices, collective_environment
from workloads.transport.event import DeviceSummed, Failed
from workloads.transport.peer import TransportError

Report = Callable[[DeviceSummed | Failed], None]


def check_backend(backend: str) -> None:
    """Raise ValueError, one line with a remedy, unless this torch has that backend and, for NCCL, a GPU to sum on."""
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

    Construct it when the other replicas construct theirs: it blocks until they have, for ``plan.timeout_ns`` at most.
    Another thread calls ``report`` at the end of each sum. Raises ValueError for what this torch or these devices
    cannot do, TransportError where the replicas do not meet.
    """

    def __init__(self, plan: CollectiveConfig, gradients: Tensor, device: str, report: Report) -> None:
        check_backend(plan.backend)
        os.environ.update(collective_environment(plan))
        self._plan = plan
        self._gradients = gradients
        self._report = report
        timeout = timedelta(microseconds=plan.timeout_ns / 1000)
        try:
            store = open_store(
                plan.store_address,
                plan.store_port,
                members=len(plan.hosts),
                keeps_it=plan.position == 0,
                timeout=timeout,
            )
            if plan.backend == NCCL:
                self._check_devices(store, device)
            dist.init_process_group(
                plan.backend,
                store=PrefixStore("all-reduce", store),
                rank=plan.position,
                world_size=len(plan.hosts),
                timeout=timeout,
            )
        except (RuntimeError, OSError) as fault:
            raise self._lost(fault) from None

    def start(self) -> int:
        """Begin to sum, in place, and return how many bytes. Do not touch the gradients until ``report`` is called."""
        Thread(target=self._sum, name="device all-reduce", daemon=True).start()
        return self._gradients.nbytes

    def close(self) -> None:
        """Leave the process group. All replicas must have summed equally often."""
        dist.destroy_process_group()

    def _sum(self) -> None:
        try:
            dist.all_reduce(self._gradients)
            if self._gradients.is_cuda:
                # NCCL has only been asked to sum, in the order of this thread's stream.
                torch.cuda.current_stream(self._gradients.device).synchronize()
        except Exception as fault:
            # Nobody looks at this thread, and the rank would wait for ever for the sum.
            self._report(Failed(self._lost(fault)))
        else:
            self._report(DeviceSummed())

    def _check_devices(self, store: Store, device: str) -> None:
        store.set(_key(self._plan.position), device)
        devices = [store.get(_key(position)).decode() for position in range(len(self._plan.hosts))]
        check_devices(devices, self._plan.hosts)

    def _lost(self, fault: Exception) -> TransportError:
        line = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        return TransportError(f"the all-reduce over {', '.join(self._plan.hosts)} failed: {line}")


def _key(position: int) -> str:
    return f"device-{position}"
