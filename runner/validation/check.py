"""Hold a simulated figure beside what arithmetic says it must be."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One case. ``law`` is the formula in words; times are integer nanoseconds, one value or one for each event."""

    case: str
    law: str
    expected_ns: tuple[int, ...]
    simulated_ns: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether the simulator gives the very nanoseconds."""
        return self.simulated_ns == self.expected_ns
