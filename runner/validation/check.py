"""Describe one comparison of a simulated figure with its computed value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LawCheck:
    """One case. ``law`` is the formula as text. Times are in integer nanoseconds: one value, or one for each event."""

    case: str
    law: str
    expected_ns: tuple[int, ...]
    simulated_ns: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether the simulated times equal the expected ones exactly."""
        return self.simulated_ns == self.expected_ns
