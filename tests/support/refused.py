"""Call something that has to refuse what it is given."""

from collections.abc import Callable

import pytest

from wanbed.ground.errors import InputError


def refused(call: Callable[[], object]) -> str:
    """Return the one line with which ``call`` refuses its input."""
    with pytest.raises(InputError) as caught:
        call()
    words = str(caught.value)
    assert "\n" not in words
    return words
