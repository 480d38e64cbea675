"""Let simulated time pass."""

from wanbed.flow.event_queue import EventQueue


def run_all(events: EventQueue) -> None:
    """Handle every event, and those that follow from them."""
    while events.handle_next_instant():
        pass
