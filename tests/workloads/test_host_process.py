import threading
from pathlib import Path

from wanbed.workloads.host_process import wake_precisely


def test_the_calling_thread_is_woken_within_a_nanosecond_of_slack() -> None:
    slacks: list[str] = []

    def read_slack() -> None:
        wake_precisely()
        slacks.append(Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text().strip())

    thread = threading.Thread(target=read_slack)
    thread.start()
    thread.join()
    assert slacks == ["1"]
