import subprocess

from testbed.virtual_time.outside_view import OutsideView


def test_without_a_kernel_there_is_no_clock() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & wait"], stdin=subprocess.DEVNULL, start_new_session=True
    ) as launcher:
        view = OutsideView(launcher.pid, 0x60000000)
        assert view.virtual_ns() is None
        view.interrupt_running()
        subprocess.run(["kill", "--", f"-{launcher.pid}"], check=True)
