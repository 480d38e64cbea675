"""Agree on the instant at which links begin to change, flows in the background to send, and ranks to train."""

import time

LEAD_NS = 50_000_000
"""Time for an instant to reach every machine before it comes."""
_LEAST_NS = 20_000_000
"""An instant that comes sooner than this is no longer agreed on with anybody."""


class CommonStart:
    """Instants of this process's monotonic clock: who asks shortly after another one is given the same."""

    def __init__(self) -> None:
        self._at_ns = 0

    def at_ns(self, lead_ns: int = LEAD_NS) -> int:
        """Return an instant to come: that which was returned last if there is time left, else one in ``lead_ns``."""
        if not self.is_to_come():
            self._at_ns = time.monotonic_ns() + lead_ns
        return self._at_ns

    def is_to_come(self) -> bool:
        """Return whether the next one who asks is given the instant that was returned last."""
        return self._at_ns - time.monotonic_ns() >= _LEAST_NS
