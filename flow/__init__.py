"""Say who gets what rate when: lines, TCP windows and connections, and resources that are shared max-min.

The simulator runs it over events, the relay by a clock, and the planner for single transfers.
"""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
