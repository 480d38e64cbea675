"""Before a network is built, report what killed runs left, and enter a user namespace where only it can have hosts."""

import os
import sys
from collections.abc import Sequence

from wanbed.runner.cli.exit_status import log
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.testbed.claims.cleaning import leftovers_text
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.rights import ENTER, hosts_allowed
from wanbed.testbed.substrate.offer import RELAY

_ENTERING = "not root: the network is made in a user namespace of your own, and has no priority over other programs"


def report_leftovers() -> None:
    """Print one line to standard error if a killed run left something on this machine."""
    if text := leftovers_text():
        log(text)


def enter_user_namespace_for(document: ExperimentDocument, substrate: str = "auto") -> None:
    """Replace this process by the same command inside a user namespace, if the experiment's network needs one.

    Do nothing for a simulation, in virtual time, for the relay, where hosts can be made directly, and where they cannot
    be made in a user namespace either: whoever brings the network up reports that.
    """
    spec = document.spec
    if substrate != RELAY and spec.engine != "simulate" and spec.clock != "virtual":
        enter_user_namespace()


def enter_user_namespace() -> None:
    """Replace this process by the same command inside a user namespace, if hosts can be made only there."""
    if in_virtual_time() or not hosts_allowed().by_entering:
        return
    # Inside, the processes of other testbeds cannot be seen.
    report_leftovers()
    log(_ENTERING)
    if sys.stdout is not None:
        sys.stdout.flush()
    os.execvp(ENTER[0], entering_command(sys.executable, sys.orig_argv))  # noqa: S606 - the same arguments again


def entering_command(interpreter: str, original: Sequence[str]) -> list[str]:
    """Return the command line that starts a Python program again inside a user namespace.

    ``original`` is the command line that it was started with.
    """
    return [*ENTER, interpreter, *original[1:]]
