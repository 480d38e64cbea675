"""Carry all connections between hosts through one unprivileged process that imposes the WAN and models TCP."""

from wanbed.ground.compiled_core.core_cache import use_compiled_core

use_compiled_core()
