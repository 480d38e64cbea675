"""Read a folder of Chakra execution traces, one file for each rank, as the nodes of each rank."""

import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from wanbed.ground.files.regular_file import regular_file
from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError
from wanbed.results.chakra.node import ChakraNode

MAX_RANKS = 65_536
MAX_BYTES = 2**30
"""The most bytes of all files together. A node takes some tens, and a hundred times as much in memory."""

_FILE = re.compile(r"(?P<name>.+)\.(?P<rank>[0-9]{1,6})\.et")
_VERSION = re.compile(r"(0|1)\.[0-9]+\.[0-9]+.*|")
"""Versions 0.x and 1.x are alike in what is read here. The converter of PyTorch's traces writes none."""


@dataclass(frozen=True)
class RankFile:
    """The file of one rank and its nodes, in the file's order."""

    path: Path
    nodes: tuple[ChakraNode, ...]

    def fault(self, node: ChakraNode, fault: str) -> InputError:
        """Return the error for a node of this file."""
        return InputError(f"{self.path}: node {node.id} {shown(node.name)}: {fault}")


@dataclass(frozen=True)
class FolderContents:
    """The files of a folder, by rank. Contents with the same digest are equal."""

    digest: str
    paths: tuple[Path, ...] = field(compare=False)
    contents: tuple[bytes, ...] = field(compare=False)

    def rank_files(self) -> tuple[RankFile, ...]:
        """Return the files with their nodes, by rank. Raise InputError, one line with the file, for what is none."""
        files = zip(self.paths, self.contents, strict=True)
        return tuple(RankFile(path, _nodes(path, content)) for path, content in files)


def read_folder(folder: Path) -> FolderContents:
    """Read the files ``NAME.RANK.et`` of a folder. Raise InputError, one line, if there is none for every rank."""
    paths = _files(folder)
    contents: list[bytes] = []
    left_bytes = MAX_BYTES
    for path in paths:
        try:
            with regular_file(path).open("rb") as file:
                contents.append(file.read(left_bytes + 1))
        except OSError as fault:
            raise InputError(f"{path}: cannot be read ({fault.strerror})") from None
        left_bytes -= len(contents[-1])
        if left_bytes < 0:
            raise InputError(f"{folder}: its files have more than {MAX_BYTES >> 30} GiB: cut the trace")
    digest = sha256(b"".join(sha256(content).digest() for content in contents)).hexdigest()
    return FolderContents(digest, tuple(paths), tuple(contents))


def _files(folder: Path) -> list[Path]:
    """Return the file of each rank, by rank."""
    where = str(folder)
    if not folder.is_dir():
        raise InputError(f"{where}: is no folder: give the folder of a Chakra trace, with a file NAME.RANK.et a rank")
    found: dict[int, Path] = {}
    names: set[str] = set()
    for path in sorted(folder.glob("*.et")):
        fits = _FILE.fullmatch(path.name)
        if fits is None:
            raise InputError(f"{path}: its name has no rank: name the files NAME.RANK.et")
        names.add(fits["name"])
        if len(names) > 1:
            raise InputError(f"{where}: has traces of two names, {' and '.join(map(shown, sorted(names)))}: keep one")
        if int(fits["rank"]) in found:
            raise InputError(f"{path}: rank {int(fits['rank'])} has another file: keep one")
        found[int(fits["rank"])] = path
    if not found:
        raise InputError(f"{where}: has no file NAME.RANK.et: give the folder of a Chakra trace")
    missing = next((rank for rank in range(max(found)) if rank not in found), None)
    if missing is not None:
        raise InputError(f"{where}: has no file for rank {missing}, and one for rank {max(found)}: give all ranks")
    return [found[rank] for rank in sorted(found)]


def _nodes(path: Path, content: bytes) -> tuple[ChakraNode, ...]:
    # protobuf comes with it, and few experiments replay a trace.
    from wanbed.results.chakra.rank_file import ChakraFileError, read_rank  # noqa: PLC0415

    try:
        version, nodes = read_rank(content)
    except ChakraFileError as fault:
        raise InputError(f"{path}: {fault}") from None
    if _VERSION.fullmatch(version) is None:
        raise InputError(f"{path}: version {shown(version)} of the format is not read, 0.x and 1.x are")
    return tuple(nodes)
