"""Describe what killed runs left on this machine, before another network is built."""

import os

from testbed.claims.cleaning import Leftover, leftovers

_LISTED = 3


def leftovers_text() -> str | None:
    """Return what killed runs left, with the remedy, in one line; None if nothing, or if this user is not root."""
    found = leftovers() if os.geteuid() == 0 else []
    if not found:
        return None
    listed = [f"{each.identifier} of {each.source} ({_extent(each)})" for each in found[:_LISTED]]
    listed += [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return f"killed runs left {', '.join(listed)}: `wanbed clean` removes what they left"


def _extent(left: Leftover) -> str:
    if not left.processes:
        return "its record"
    return f"{left.processes} processes, {left.namespaces} network namespaces"
