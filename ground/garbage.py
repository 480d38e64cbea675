"""Collect garbage rarely, in a process that makes many objects of which nearly all stay."""

import gc

_COLLECT_AFTER = 500_000
"""New objects until garbage is collected: more than a command imports."""


def collect_rarely() -> None:
    """Look for garbage seldom from now on.

    What is imported stays, and so does nearly all of what is made of a large experiment: looking at it finds next to
    nothing.
    """
    gc.set_threshold(_COLLECT_AFTER)
