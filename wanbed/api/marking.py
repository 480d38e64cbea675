"""``wanbed.mark_iteration``: a program under test says itself where its iterations end."""

import sys


def mark_iteration() -> None:
    """Mark the end of an iteration in a training program that an experiment runs with ``marked_by: call``.

    Call it once an iteration, in the process that trains. Outside of a testbed, and where something else marks
    iterations, it does nothing, so it can stay in the program. After the last iteration of the trial, too.
    """
    # The hook is in this process only if the testbed put it there.
    hook = sys.modules.get("wanbed_hook.hook")
    if hook is not None:
        hook.mark_iteration()
