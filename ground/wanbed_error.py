"""Define the base of the errors that a caller can expect, whichever part of wanbed raises them."""


class WanbedError(Exception):
    """Raised for what is no mistake of this program: unusable input, a machine that lacks something, a failed trial.

    The message says in one line what is wrong and what to do. Any other error is a bug.
    """
