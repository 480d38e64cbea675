"""Define the error for something that the machine lacks."""

from wanbed.ground.wanbed_error import WanbedError


class MissingError(WanbedError):
    """The machine lacks something; the message is one line that names it and what to install. Exit status 5."""
