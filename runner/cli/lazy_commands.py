"""Load the module of a command when the command is called, so that help and completion load none of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """A command: its function as ``module:function``, the first sentence of its docstring, and click's settings."""

    function: str
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """Import the command's module, and return the command as click knows it."""
        module, _, function = self.function.partition(":")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, context_settings=self.settings)(getattr(import_module(module), function))
        return typer.main.get_command(app)


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group in which each of ``commands`` replaces its stand-in once it is called."""

    class LazyGroup(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, found, rest = super().resolve_command(ctx, args)
            return name, commands[name].load(name) if name else found, rest

    return LazyGroup


def stand_in() -> NoReturn:
    """Hold a command's place in lists; the group calls the command itself."""
    raise NotImplementedError("a lazy group calls its commands, not their stand-ins")
