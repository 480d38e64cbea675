import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from wanbed.testbed.virtual_time.outside_view import OutsideView

TWO_PROCESSES = """
import os, signal, time
def child(work):
    if number := os.fork():
        return number
    while True:
        work()
spinning, waiting = child(lambda: None), child(lambda: time.sleep(0.0005))
ended = {}
while spinning not in ended:
    number, status = os.wait()
    ended[number] = os.WTERMSIG(status)
print(ended == {spinning: signal.SIGALRM}, end="", flush=True)
os.kill(waiting, signal.SIGKILL)
"""


def test_without_a_kernel_there_is_no_clock() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & wait"], stdin=subprocess.DEVNULL, start_new_session=True
    ) as launcher:
        view = OutsideView(launcher.pid, 0x60000000)
        assert view.virtual_ns() is None
        view.interrupt_spinning()
        subprocess.run(["kill", "--", f"-{launcher.pid}"], check=True)


def test_only_processes_that_never_stop_are_interrupted(tmp_path: Path) -> None:
    kernel = tmp_path / "linux"
    kernel.symlink_to(os.path.realpath(sys.executable))
    with subprocess.Popen(
        ["sh", "-c", '"$@"; true', "launcher", "sh", "-c", '"$@"; true', "shell", str(kernel), "-c", TWO_PROCESSES],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:
        assert launcher.stdout is not None
        view, deadline = OutsideView(launcher.pid, 0), time.monotonic() + 60
        try:
            while not select.select([launcher.stdout], [], [], 0.03)[0] and time.monotonic() < deadline:
                view.interrupt_spinning()
        finally:
            os.killpg(launcher.pid, signal.SIGKILL)
        assert launcher.stdout.read() == "True"
