"""A terminal whose screen a test reads."""

import io


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
