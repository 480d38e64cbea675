"""Say that the kernel does not hold what it was told to."""

from wanbed.ground.wanbed_error import WanbedError


class ReadBackError(WanbedError):
    """The kernel's state of a port differs from the plan; the message names the port and both states."""
