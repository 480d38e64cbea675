"""How property tests run: with the same examples each time, so that a landing owes nothing to luck.

``WANBED_SEARCH=1 make test`` draws others, anew each time, and prints what draws a failing one again.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if os.environ.get("WANBED_SEARCH") else "repeatable")
