"""Take a value that may be missing where it must not be."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value, and fail where there is none."""
    assert value is not None
    return value
