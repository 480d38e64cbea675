"""Let messages name the arguments of a function, where a command's name its options."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from wanbed.ground.errors import InputError

_OPTION = re.compile(r"(?<!\S)--([a-z]+(?:-[a-z]+)*)")


def _argument(option: re.Match[str]) -> str:
    return option[1].replace("-", "_")


@contextmanager
def options_as_arguments() -> Iterator[None]:
    """Write each ``--keep-gradients`` as ``keep_gradients`` in the message of an InputError that is raised inside."""
    try:
        yield
    except InputError as refusal:
        refusal.args = tuple(_OPTION.sub(_argument, str(each)) for each in refusal.args)
        raise
