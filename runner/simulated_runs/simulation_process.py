"""Simulate trials in a process of its own, one after the other, as ``simulated_sweep`` hands them over.

Its arguments are the number of the process that started it and the descriptor of its end of a connection to it. First
come the folders that modules are imported from, then the run's folder and the simulator, then trials, then None.
"""

import sys
from multiprocessing.connection import Connection

from runner.simulated_runs.simulated_trial import simulate_into
from workloads.parent_process import die_with_parent


def main(parent_pid: int, connection: Connection) -> None:
    """Simulate every trial that comes, and answer each with None or its foreseen failure."""
    die_with_parent(parent_pid)
    sys.path[:] = connection.recv()
    run, simulate = connection.recv()
    connection.send(None)
    while (trial := connection.recv()) is not None:
        connection.send(simulate_into(run, trial, simulate))


if __name__ == "__main__":
    main(int(sys.argv[1]), Connection(int(sys.argv[2])))
