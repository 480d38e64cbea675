"""Whole numbers of 64 bits as the compiler keeps them: a number in a machine's word, many in a flat array.

They are those of the compiler where a module is compiled. Where it is interpreted nothing has to be installed for them:
numbers are Python's own, and arrays those of its library. An array raises OverflowError for a number beyond 64 bits;
compiled code does so already where such a number becomes an ``i64``, and does not notice where two of them make one.
"""

from typing import TYPE_CHECKING

__all__ = ["i64", "vec"]

if TYPE_CHECKING:
    from librt.vecs import vec
    from mypy_extensions import i64
else:
    from array import array
    from functools import partial

    i64 = int

    class vec:  # noqa: N801 - the name that the compiler knows
        """Makes an array: ``vec[i64](numbers)``."""

        def __class_getitem__(cls, kind):
            """Return what makes an array of such numbers."""
            return partial(array, "q")
