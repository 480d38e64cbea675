"""Let a message begin once it is made and its receiver has asked for it, whichever comes last."""

from collections.abc import Callable, Hashable


class Requests:
    """The messages that wait for their receiver, and the requests that wait for their message, by any key."""

    def __init__(self) -> None:
        self._unasked: dict[Hashable, Callable[[], None]] = {}
        self._unmade: set[Hashable] = set()

    def made(self, key: Hashable, begin: Callable[[], None]) -> None:
        """Call ``begin`` as soon as the message has been asked for, which may be now."""
        if key in self._unmade:
            self._unmade.remove(key)
            begin()
        else:
            self._unasked[key] = begin

    def asked(self, key: Hashable) -> bool:
        """Begin the message, or do so once it is made. Return False, and do nothing, if it was asked for before."""
        if key in self._unmade:
            return False
        begin = self._unasked.pop(key, None)
        if begin is None:
            self._unmade.add(key)
        else:
            begin()
        return True
