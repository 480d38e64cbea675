"""The span log, written line by line so that it survives the death of the process at any moment.

Its format is that of ``results/records/span_log.py``, which reads it; a test reads one by the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

VERSION = 2


class Span(NamedTuple):
    """One activity, with the fields of a span log's lines; times in nanoseconds since the epoch of the log."""

    kind: str
    iteration: int
    microbatch: int
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    peer: str = ""
    tensor: str = ""
    request: int = -1


class SpanLogFile:
    """A log that this process owns. Each call of ``write`` is one write to the kernel."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def claim(cls, path: str, header: dict[str, Any]) -> SpanLogFile | None:
        """Create the log with its header. Return None if another process has: the first one owns it.

        A reader finds it with the header or not at all.
        """
        partial = f"{path}.{os.getpid()}.partial"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        log = cls(descriptor)
        log.write([{"version": VERSION, **header}])
        try:
            os.link(partial, path)
        except FileExistsError:
            log.close()
            return None
        finally:
            os.unlink(partial)
        return log

    def write(self, entries: Iterable[object]) -> None:
        """Append the entries at once. Raise OSError if there is no room for all."""
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in entries).encode()
        while text:
            text = text[os.write(self._descriptor, text) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
