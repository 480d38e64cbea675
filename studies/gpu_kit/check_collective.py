"""Try whether two hosts that share one GPU can all-reduce: ``python -m studies.gpu_kit.check_collective [nccl|gloo]``.

NCCL refuses one GPU twice on one host. Two emulated hosts have different ids (NCCL_HOSTID), so it may accept one GPU on
both. Nothing but an attempt shows whether it does. Gloo on the CPU shows only that the check itself works.
"""

import subprocess
import sys
import time
from queue import SimpleQueue

from studies.gpu_kit.clocks import clocks_named
from studies.gpu_kit.loopback_training import LOOPBACK
from wanbed.workloads.collective.collective_config import GLOO, NCCL, CollectiveConfig
from wanbed.workloads.transport.event import DeviceSummed, Failed

HOSTS = ("east-0", "east-1")
ELEMENTS, ROUNDS = 16 * 2**20, 5
PORT = 31_007
LIMIT_NS = 60_000_000_000


def all_reduce(position: int, backend: str, port: int = PORT, elements: int = ELEMENTS) -> str:
    """Sum a tensor ``ROUNDS`` times with the other process. Return one line with the rate.

    Raise ValueError for a wrong sum or a torch that cannot, TransportError if the collective fails.
    """
    import torch  # noqa: PLC0415

    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce  # noqa: PLC0415
    from wanbed.workloads.compute.device.torch_device import create_device  # noqa: PLC0415

    device = create_device("cuda" if backend == NCCL else "cpu")
    config = CollectiveConfig(
        backend, HOSTS, position, "lo", LOOPBACK, port, LIMIT_NS, all_reduce_timeout_ns=LIMIT_NS, shares_gpus=True
    )
    values = torch.ones(elements, device=device.device)
    events: SimpleQueue[DeviceSummed | Failed] = SimpleQueue()
    name = "cpu" if device.runtime is None else device.runtime.device
    collective = DeviceAllReduce(config, values, name, events.put)
    for _ in range(ROUNDS):
        begun_s = time.monotonic()
        collective.start()
        event = events.get()
        if isinstance(event, Failed):
            raise event.error
        taken_s = time.monotonic() - begun_s
    collective.close()
    expected = float(len(HOSTS) ** ROUNDS)
    if not bool((values == expected).all()):
        raise ValueError(f"the sum is {values[0].item():g}, not {expected:g}")
    return f"{backend}: {values.nbytes / 2**20:.0f} MiB in {taken_s * 1e3:.1f} ms, {len(HOSTS)} hosts on {name}"


def run_pair(backend: str, port: int = PORT, elements: int = ELEMENTS) -> tuple[bool, str]:
    """Run both processes. Return whether both summed, and a line of the first, or of the first that failed."""
    this = [sys.executable, "-m", "studies.gpu_kit.check_collective"]
    commands = [[*this, backend, str(position), str(port), str(elements)] for position in (0, 1)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    try:
        printed = [process.communicate(timeout=3 * LIMIT_NS / 1e9)[0].strip() for process in both]
    except subprocess.TimeoutExpired:
        return False, f"{backend}: it hangs"
    finally:
        for process in both:
            process.kill()
    for process, text in zip(both, printed, strict=True):
        if process.returncode:
            return False, text.splitlines()[-1] if text else f"{backend}: ended with status {process.returncode}"
    return True, printed[0].splitlines()[-1]


def main(arguments: list[str]) -> int:
    """Run the pair, or one of its processes if a position is given. Return 1 if it failed."""
    backend = arguments[0] if arguments else NCCL
    if backend not in {NCCL, GLOO}:
        print(f"check_collective: {backend!r} is none of {NCCL}, {GLOO}", file=sys.stderr)
        return 2
    if len(arguments) == 4:
        try:
            print(all_reduce(int(arguments[1]), backend, int(arguments[2]), int(arguments[3])), flush=True)
        except Exception as failure:
            print(f"{type(failure).__name__}: {str(failure).strip().splitlines()[0]}", flush=True)
            return 1
        return 0
    with clocks_named("cuda" if backend == NCCL else "cpu"):
        passed, text = run_pair(backend)
    print(f"{'ok    ' if passed else 'FAILED'} {text}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
