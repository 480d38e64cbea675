"""Let a process, and what it starts, have as many files open as its work takes."""

import resource

from wanbed.ground.errors import MissingError


def allow_open_files(whose: str, wanted: int, least: int = 0) -> None:
    """Allow ``wanted`` open files, or as many as this user may have. More that are allowed already stay allowed.

    Raise MissingError, which names ``whose`` they are, if that is fewer than the ``least`` with which it works.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < least:
        raise MissingError(f"{whose} takes {least} open files at least, and ulimit -n allows {hard}: raise it")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
