"""Model TCP for a whole transfer: a channel, and the effects that a simulation includes."""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
