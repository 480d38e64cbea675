import socket
import subprocess
import sys

from wanbed.testbed.hosts.host import Program, wait_for_any

FOREVER, AT_ONCE = "import time; time.sleep(60)", "raise SystemExit(3)"


def program(text: str) -> Program:
    return Program([sys.executable, "-c", text], stdin=subprocess.DEVNULL)


def test_waiting_ends_with_the_first_that_ends() -> None:
    with program(FOREVER) as lasting, program(AT_ONCE) as short:
        wait_for_any([lasting, short], 30)
        assert short.wait(30) == 3
        assert lasting.poll() is None
        lasting.kill()


def test_waiting_ends_when_its_time_is_over_though_all_run() -> None:
    with program(FOREVER) as lasting:
        wait_for_any([lasting], 0.01)
        assert lasting.poll() is None
        lasting.kill()


def test_waiting_ends_when_there_is_something_else_to_read() -> None:
    reading, writing = socket.socketpair()
    with reading, writing, program(FOREVER) as lasting:
        writing.send(b"!")
        wait_for_any([lasting], 3600, or_readable=reading)
        assert lasting.poll() is None
        lasting.kill()


def test_nothing_is_waited_for_where_none_runs() -> None:
    with program(AT_ONCE) as short:
        short.wait(30)
        wait_for_any([short], 3600)
        wait_for_any([], 3600)
