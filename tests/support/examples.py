"""Give dear property tests few examples on every landing, and more whenever they are drawn anew."""

import os

from hypothesis import settings


def examples(landing: int, *, drawn_anew: int) -> settings:
    """Return the settings of a property test; ``WANBED_SEARCH=1``, as in the soak, draws anew."""
    return settings(max_examples=drawn_anew if os.environ.get("WANBED_SEARCH") else landing)
