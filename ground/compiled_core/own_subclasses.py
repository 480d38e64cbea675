"""Let users' classes, which are not compiled, be subclasses of classes that may be."""

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Return the class unchanged. Only the compiler reads this decorator, so nothing has to be installed for it."""
        return lambda kind: kind
