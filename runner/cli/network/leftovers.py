"""Report what killed runs left on this machine, before another network is built."""

import os
import sys

from testbed.claims.cleaning import Leftover, leftovers

_LISTED = 3


def report_leftovers() -> None:
    """Print one line to standard error if a killed run left something; whoever is not root sees nothing of it."""
    found = leftovers() if os.geteuid() == 0 else []
    if not found:
        return
    listed = [f"{each.identifier} of {each.source} ({_extent(each)})" for each in found[:_LISTED]]
    listed += [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    print(f"wanbed: killed runs left {', '.join(listed)}: `wanbed clean` removes what they left", file=sys.stderr)


def _extent(left: Leftover) -> str:
    if not left.processes:
        return "its record"
    return f"{left.processes} processes, {left.namespaces} network namespaces"
