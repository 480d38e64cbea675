"""Read a log of packets from whatever file it is in: CSV, or captures of one or both ends."""

from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.ground.files import naming, regular_file
from wanbed.runner.learnt_links.capture_log import is_capture, read_both_captures, read_probe_capture
from wanbed.runner.learnt_links.csv_log import read_csv_log
from wanbed.runner.learnt_links.packet_log import PacketLog


def read_log(path: Path, receiver: Path | None = None) -> PacketLog:
    """Return the log in a file; ``receiver`` is the receiving end's capture where ``path`` is the sending end's.

    Raise InputError with one line, and OSError if a file cannot be read.
    """
    capture = is_capture(_beginning(path))
    if receiver is None:
        return read_probe_capture(path) if capture else read_csv_log(path)
    for end in (path, receiver):
        if not is_capture(_beginning(end)):
            raise InputError(f"{end}: is no capture: with --receiver, give the captures of both ends")
    return read_both_captures(path, receiver)


def _beginning(path: Path) -> bytes:
    with naming(path), regular_file(path).open("rb") as file:
        return file.read(4)
