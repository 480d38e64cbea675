"""Model what a line lets through: TCP windows, slow start, striping, and rates that are shared max-min."""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
