"""Write the command line of torch's launcher on one host."""

from collections.abc import Sequence
from pathlib import Path

from wanbed.runner.trainings.program.on_hosts.placeholder_values import ProgramPlaces
from wanbed.testbed.network.topology import Host

_MODULE = "torch.distributed.run"


def torchrun_command(
    places: ProgramPlaces, host: Host, run_token: str, each: Sequence[str], log_folder: Path
) -> tuple[str, ...]:
    """Return the command line that runs torchrun on ``host``, which starts the command ``each`` for every process.

    torchrun belongs to the Python that the user's command names, because that one has the torch that the program uses;
    otherwise it is searched on PATH. A process that fails is not started again: the trial has failed.
    """
    python = places.program.torchrun_python
    launcher = ["torchrun"] if python is None else [*places.words([python], host), "-m", _MODULE]
    index = places.hosts.index(host)
    if places.program.spec.rendezvous == "static":
        meeting = [
            "--rdzv-backend=static",
            f"--node-rank={index}",
            f"--master-addr={places.rendezvous_address}",
            f"--master-port={places.rendezvous_port}",
        ]
    else:
        meeting = [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={places.rendezvous_host.name}:{places.rendezvous_port}",
        ]
    return (
        *launcher,
        f"--nnodes={len(places.hosts)}",
        f"--nproc-per-node={len(places.places_on(host))}",
        *meeting,
        f"--rdzv-id={run_token}",
        "--max-restarts=0",
        # Without one it makes folders in TMPDIR, and leaves them there.
        f"--log-dir={log_folder}",
        "--no-python",
        *each,
    )
