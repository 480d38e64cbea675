"""Simulate trainings until all of them are over: one, or those of several jobs, which share events and network."""

from collections.abc import Sequence

from wanbed.runner.simulator.signals import let_signals_in
from wanbed.runner.simulator.training.training import PULSE_INSTANTS, Pulse, Training


def run_trainings(first: Training, beside: Sequence[Training] = (), pulse: Pulse | None = None) -> None:
    """Simulate all iterations of the first training and of those ``beside`` it, which have no other user of GPUs.

    At one instant the ranks of the first are asked first. ``pulse`` is called after every ``PULSE_INSTANTS`` instants.
    Raises SimulationError if a schedule fails, DeadlockError if it deadlocks.
    """
    everyone = (first, *beside)
    for each in everyone:
        each.begin()
    instant = 0
    while True:
        while first.is_pending or (beside and any(each.is_pending for each in beside)):
            for each in everyone:
                each.start_pending()
        is_training = first.is_training or (beside and any(each.is_training for each in beside))
        # Events that are left when training is over are outdated ends of transfers whose rates have changed.
        if not is_training or not first.next_instant():
            break
        instant += 1
        if instant % PULSE_INSTANTS == 0:
            let_signals_in()
            if pulse is not None:
                pulse(first.share_done())
    for each in everyone:
        each.check_done()
