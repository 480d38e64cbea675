"""A clock that a test moves."""


class Clock:
    """Return ``now_s`` wherever the time is asked for."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
