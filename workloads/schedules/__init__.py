"""Pipeline schedules. Each is written once; the simulator and the ranks use the same class."""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
