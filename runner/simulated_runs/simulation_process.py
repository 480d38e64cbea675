"""Simulate trials in a process of its own, one after the other, as ``process_pool`` hands them over.

Its arguments are the number of the process that started it and the descriptor of its end of a connection to it. First
come the folders that modules are imported from, then the run's folder and the simulator, then trials, then None.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from wanbed.ground.garbage import collect_rarely
from wanbed.runner.simulated_runs.simulated_trial import simulate_into
from wanbed.workloads.host_process import ParentEndedError, die_with_parent


def main(parent_pid: int, connection: Connection) -> None:
    """Simulate every trial that comes, and answer each with None or its foreseen failure.

    Numbers before an answer are the share of the trial that is simulated.
    """
    with _ended_by_parent():
        die_with_parent(parent_pid)
        sys.path[:] = connection.recv()
        run, simulate = connection.recv()
        connection.send(None)
        trial = connection.recv()
    while trial is not None:
        answer = simulate_into(run, trial, simulate, connection.send)
        with _ended_by_parent():
            connection.send(answer)
            trial = connection.recv()


@contextmanager
def _ended_by_parent() -> Iterator[None]:
    """End without a word where the parent has ended or the connection breaks: whoever was to hear of it was killed."""
    try:
        yield
    except (EOFError, OSError, ParentEndedError):
        raise SystemExit from None


if __name__ == "__main__":
    collect_rarely()
    main(int(sys.argv[1]), Connection(int(sys.argv[2])))
