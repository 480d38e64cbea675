"""Act once a module has been imported, without importing it, and without a trace in it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


def after_import(name: str, action: Action) -> None:
    """Call ``action`` with the module, at once if it is imported already, else when somebody has imported it."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _ImportWatch(name, action))


class _ImportWatch(MetaPathFinder):
    """Finds nothing itself: it lets the other finders find the one module, and watches how that is loaded."""

    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find for the watched module, None for every other."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        # Out of the way of the search, and of every later import.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        loader = spec.loader
        load = loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            del loader.exec_module
            try:
                load(module)
            except BaseException:
                # A program may try again.
                sys.meta_path.insert(0, self)
                raise
            self._action(module)

        # On this one object: its class, by which a module may know its loader, stays what it is.
        loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec
