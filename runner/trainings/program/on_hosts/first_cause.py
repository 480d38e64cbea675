"""Choose, among what failed processes of one program say, the line that names the cause."""

import re
from collections.abc import Sequence

_CONSEQUENCES = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was |is )?(closed|lost|refused)|socket closed|"
    r"remote process exited|peer (was |is )?lost|heartbeat|timed out|timeout|ended by SIG(TERM|ABRT)|"
    r"ChildFailedError|DistNetworkError|SignalException",
    re.IGNORECASE,
)
"""The messages that ranks print when another rank has gone, and that a launcher prints about any rank."""


def first_cause(lines: Sequence[str]) -> str | None:
    """Return the first line that is not the consequence of another rank's end, else the first; None without any.

    ``lines`` are in the order in which the processes ended. The rank that fails first often ends last: its traceback
    is being printed while the others already miss its connection.
    """
    return next((line for line in lines if not _CONSEQUENCES.search(line)), lines[0] if lines else None)
