"""Simulate replicas of a star that are killed, and those of them that come back and join the training under way.

The rules are those of ``wanbed.workloads.transport.star``. The rank that gathers knows of a killed one after one
latency. One that comes back has called after three: there and back for its connection, and its hello. Before the next
iteration in which no synchronisation is under way, the one that gathers sends it what it begins with. A process starts
in no time, and the connections are as warm as they were.
"""

from array import array

import numpy as np

from wanbed.flow.event_queue import EventQueue
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.simulator.simulated_ranks import NUMBERS, RankState
from wanbed.runner.simulator.simulation import KIND_CODES, SimulatedFailure
from wanbed.runner.simulator.training import Training
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.local_updates.simulation import PartCut, Star


class SimulatedFailures:
    """The failures of one training over ``star``, whose replicas have one stage each. Call ``begin`` before it begins.

    ``headers`` is whether transfers have those of their frames.
    """

    def __init__(
        self,
        variant: LocalUpdatesVariant,
        training: Training,
        star: Star,
        events: EventQueue,
        *,
        iterations: int,
        headers: bool,
    ) -> None:
        self._variant = variant
        self._training = training
        self._star = star
        self._events = events
        self._iterations = iterations
        self._cut = PartCut.of(variant.state_bytes(0), star.connections, headers=headers)
        self._killed: dict[int, RankState] = {}
        self._waiting: list[int] = []
        self._begins_with: dict[int, int] = {}
        self._undone: list[tuple[int, int, int]] = []
        self.found: list[SimulatedFailure] = []
        """The failures so far, in order of time."""

    def begin(self) -> None:
        """Let everything fail when it is due."""
        self._training.advanced = self._advanced
        for fault in self._variant.failures:
            self._events.at(fault.at_ns, self._fail, fault)

    def kept(self, rows: "array[int]") -> "array[int]":
        """Return the spans without the computations of iterations that a killed rank has not finished.

        A rank logs what it has computed when it has finished the iteration.
        """
        if not self._undone:
            return rows
        each = np.frombuffer(rows, np.int64).reshape(-1, NUMBERS)
        computed = np.isin(each[:, 1], [KIND_CODES[kind] for kind in COMPUTE_KINDS])
        dropped = np.zeros(len(each), bool)
        for rank, iteration, at_ns in self._undone:
            dropped |= computed & (each[:, 0] == rank) & (each[:, 2] == iteration) & (each[:, 4] <= at_ns)
        return array("q", each[~dropped].tobytes())

    def _fail(self, now_ns: int, fault: PlannedFault) -> None:
        rank = self._training.kill(fault.rank)
        self._killed[rank.rank] = rank
        self._undone.append((rank.rank, rank.iteration, now_ns))
        self.found.append(SimulatedFailure(fault, rank.rank, now_ns))
        self._star.kill(rank.pipeline)
        latency_ns = self._star.latency_ns(rank.pipeline)
        self._events.at(now_ns + latency_ns, self._notice, self.found[-1])
        if fault.back_ns is not None:
            self._events.at(max(fault.back_ns, now_ns) + 3 * latency_ns, self._called, rank.pipeline)

    def _notice(self, now_ns: int, failure: SimulatedFailure) -> None:
        failure.known_ns = now_ns
        self._star.lose(failure.rank, now_ns)

    def _called(self, _: int, position: int) -> None:
        self._waiting.append(position)

    def _advanced(self, now_ns: int, rank: RankState) -> None:
        """Let replicas that have called begin with the next iteration of the one that gathers."""
        synchronization = self._variant.synchronization
        assert synchronization is not None
        if rank.pipeline != 0 or rank.iteration >= self._iterations:
            return
        for position in sorted(self._waiting):
            self._begins_with[position] = rank.iteration
            sums = synchronization.count(rank.iteration)
            self._star.admit(position, sums, self._cut, now_ns, self._begin_again)
        self._waiting.clear()

    def _begin_again(self, now_ns: int, position: int) -> None:
        iteration, killed = self._begins_with[position], self._killed[position]
        failure = next(each for each in reversed(self.found) if each.rank == position)
        failure.joined_ns = now_ns
        # What it has logged of iterations that it does again does not count.
        self._undone += [(position, each, failure.at_ns) for each in range(iteration, killed.iteration)]
        self._training.begin_again(killed, iteration)
