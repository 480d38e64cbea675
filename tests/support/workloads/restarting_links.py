"""Links whose windows close in pauses, as a plan knows them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Restarting:
    """Links that take ``again_ns`` more for a transfer after a pause of more than ``pause_ns``."""

    pause_ns: int
    again_ns: int

    def opened(self) -> "Restarted":
        return Restarted(self)


@dataclass
class Restarted:
    links: Restarting
    free_ns: int = 0

    def send(self, ready_ns: int) -> tuple[int, int]:
        restarts = ready_ns - self.free_ns > self.links.pause_ns
        self.free_ns = max(self.free_ns, ready_ns) + 10 + (self.links.again_ns if restarts else 0)
        return self.free_ns, self.free_ns + 100
