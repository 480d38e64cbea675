"""Describe what killed runs left on this machine, before another network is built."""

from wanbed.testbed.claims.cleaning import Leftover, leftovers
from wanbed.testbed.rights.hosts_allowed import in_user_namespace

_LISTED = 3


def leftovers_text() -> str | None:
    """Return what killed runs left, with the remedy, in one line; None if nothing.

    None inside a user namespace too, where the processes of another one cannot be seen: ask before entering it.
    """
    found = [] if in_user_namespace() else leftovers()
    if not found:
        return None
    listed = [f"{each.identifier} of {each.source} ({_extent(each)})" for each in found[:_LISTED]]
    listed += [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return f"killed runs left {', '.join(listed)}: `wanbed clean` removes what they left"


def _extent(left: Leftover) -> str:
    if not left.processes:
        return "its record"
    return f"{left.processes} processes, {left.namespaces} network namespaces"
