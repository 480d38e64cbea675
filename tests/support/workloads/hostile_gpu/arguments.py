"""An operator's arguments: tensors, and lists of tensors, among other values. Torch's own trees know of far more."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

Call = tuple[tuple[Any, ...], dict[str, Any]]


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return every tensor, in order."""
    return [each for value in (*args, *kwargs.values()) for each in _within(value) if isinstance(each, Tensor)]


def mapped(change: Callable[[Tensor], Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the arguments with every tensor changed."""
    return (
        tuple(_mapped(change, value) for value in args),
        {name: _mapped(change, value) for name, value in kwargs.items()},
    )


def form_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return size, stride and type."""
    return tensor.size(), tensor.stride(), tensor.dtype


def form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what an operator's results may have their form from: that of tensors, and all other values."""
    return tuple(map(_form, args)), tuple((name, _form(value)) for name, value in kwargs.items())


def _within(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    return [_mapped(change, each) for each in value] if isinstance(value, list | tuple) else value


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return form_of(value)
    # 1, 1.0 and True are the same to a dictionary, and not to an operator.
    return tuple(map(_form, value)) if isinstance(value, list | tuple) else (type(value), value)
