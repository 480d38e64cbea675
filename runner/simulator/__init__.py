"""The engine ``simulate``: a discrete-event simulation of training, with the emulation's schedules and topology."""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
