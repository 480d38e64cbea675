"""Put something other than a readable file in a file's place: a folder, a pipe, links that lead nowhere, nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

IN_PLACE_OF_A_FILE: tuple[Callable[[Path], object], ...] = (
    Path.mkdir,
    os.mkfifo,
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("nothing"),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to("/proc/self/mem"),
    Path.touch,
    lambda path: None,
)


def replace_file(path: Path, draw: Random) -> None:
    """Replace the file."""
    path.unlink()
    draw.choice(IN_PLACE_OF_A_FILE)(path)
