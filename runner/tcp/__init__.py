"""Model TCP for a whole transfer: channels, and stage boundaries that are planned ahead."""

from wanbed.ground.compiled_core.core_finder import use_compiled_core

use_compiled_core()
