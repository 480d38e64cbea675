import socket
import struct
import threading
from pathlib import Path

from wanbed.testbed.virtual_time.guest import send_command


def answering(path: Path, *answers: bytes) -> tuple[threading.Thread, list[bytes]]:
    """A kernel that answers one command in these parts."""
    console = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    console.bind(str(path))
    orders: list[bytes] = []

    def answer() -> None:
        with console:
            text, sender = console.recvfrom(4096)
            orders.append(text)
            for part in answers:
                more = part is not answers[-1]
                console.sendto(struct.pack("=III", 0, more, len(part) + 1) + part + b"\0", sender)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread, orders


def test_an_answer_in_parts_is_put_together(tmp_path: Path) -> None:
    thread, (*_,) = answering(tmp_path / "console", b"Pid: 6", b"3, comm: x")
    assert send_command(tmp_path / "console", "sysrq p", 5) == "Pid: 63, comm: x"
    thread.join()


def test_an_order_has_the_protocols_form(tmp_path: Path) -> None:
    thread, orders = answering(tmp_path / "console", b"")
    assert send_command(tmp_path / "console", "cad", 5) == ""
    thread.join()
    assert struct.unpack_from("=III3s", orders[0]) == (0xCAFEBABE, 2, 3, b"cad")


def test_a_kernel_that_is_not_there_or_does_not_answer_gives_none(tmp_path: Path) -> None:
    assert send_command(tmp_path / "none", "cad", 5) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mute:
        mute.bind(str(tmp_path / "mute"))
        assert send_command(tmp_path / "mute", "cad", 0.01) is None
