"""A network namespace without a process of its own, which a test holds by a descriptor."""

import os
from types import TracebackType
from typing import Any, Self

from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink


class HeldNamespace:
    """A namespace for the duration of a ``with`` block. It ends with this process and what it started there."""

    def __enter__(self) -> Self:
        self._descriptor = anonymous_namespace()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def namespace(self) -> str:
        """Path of the namespace, for this process and others of its user."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def open_netlink(self) -> Any:
        """Open a netlink socket in the namespace."""
        return open_netlink(self.namespace)
