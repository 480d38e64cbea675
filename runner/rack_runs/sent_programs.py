"""Pack the files of users' programs for the hosts of a rack, and check a machine for what is not sent to it.

Hosts start programs in the same folders as one machine does. What is packed: the current folder, in which programs
start, and the experiment's folder where a placeholder names it. Of these stay here: version control, caches, virtual
environments, and the runs of wanbed.

Ray's ``runtime_env`` sends wanbed itself, but not these files: it replaces links by what they lead to, leaves out what
a ``.gitignore`` names, has one copy for all runs, and keeps it after the run, in folders that everybody can write to.
"""

import io
import os
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from wanbed.ground.errors import InputError, one_line, shown
from wanbed.ground.units import format_size
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.on_hosts import program_fault, wanted_programs
from wanbed.runner.trainings.program.resolution import ProgramVariant, ResolvedProgram
from wanbed.runner.trainings.program.spec import filled, placeholders_in
from wanbed.testbed.hosts.host_environment import search_path
from wanbed.testbed.rack.sent_files import SentFiles

MOST_BYTES = 128 * 2**20
"""The most that all files may have: more than that is more than a program."""

MOST_FILES = 20_000

_LEFT_OUT = frozenset({".git", ".hg", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})

_ENVIRONMENT = "pyvenv.cfg"

_RUN = frozenset({"manifest.json", "trials"})
"""The file that marks the folder of a virtual environment, and the files that mark the folder of a run."""


def programs_of(points: Iterable[SweepPoint]) -> list[tuple[str, ResolvedProgram]]:
    """Return the programs of sweep points, each once, behind the field of the file that has it."""
    found: list[tuple[str, ResolvedProgram]] = []
    for point in points:
        for position, variant in enumerate(point.variants):
            if not isinstance(variant, ProgramVariant):
                continue
            entry = f"variants.{position}.program", variant.program
            if entry not in found:
                found.append(entry)
    return found


def words_of(program: ResolvedProgram) -> Iterator[str]:
    """Yield every word of a program that placeholders are filled in: of its commands, and values of variables."""
    spec = program.spec
    yield from (*spec.command, *(spec.setup or ()), *spec.env.values())
    for each in spec.also:
        yield from each.command


def packed_programs(programs: Iterable[ResolvedProgram], left_out: Path) -> SentFiles:
    """Return the files of these programs, without the folder ``left_out``, which receives runs.

    Raise InputError for files that are too many, too large or cannot be read.
    """
    working = Path.cwd()
    folders = {working}
    for program in programs:
        if any("folder" in placeholders_in(word) for word in words_of(program)):
            folders.add(program.folder)
    roots = tuple(sorted(each for each in folders if not any(other in each.parents for other in folders)))
    found = [(root, path) for root in roots for path in _contents(root, left_out.resolve())]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for number, root in enumerate(roots):
            for path in (path for own, path in found if own == root):
                _add(packed, path, f"{number}/{path.relative_to(root)}" if path != root else str(number))
    return SentFiles(roots, frozenset(str(path) for _, path in found), archive.getvalue())


def _contents(root: Path, left_out: Path) -> Iterator[Path]:
    """Yield a folder and what is below it, in an order that depends on the names alone. Raise InputError."""
    size_bytes, count = 0, 0
    for place, folders, files in os.walk(root):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not _stays(here / name, left_out))
        links = [name for name in folders if (here / name).is_symlink()]
        yield here
        for name in sorted([*files, *links]):
            path = here / name
            if not path.is_symlink() and not path.is_file():
                # A socket, a pipe or a device is no file that could be sent.
                continue
            size_bytes, count = size_bytes + path.lstat().st_size, count + 1
            if size_bytes > MOST_BYTES or count > MOST_FILES:
                raise InputError(
                    f"{root}: has more than {format_size(MOST_BYTES)} or {MOST_FILES} files, and all of it would be "
                    "sent to every machine of the rack for the program: start wanbed in a folder that has only what "
                    "the program needs, and put data on the machines, at the same path on each"
                )
            yield path


def _stays(folder: Path, left_out: Path) -> bool:
    if folder.is_symlink():
        return False
    names: Collection[str] = os.listdir(folder) if os.access(folder, os.R_OK) else ()
    return folder.name in _LEFT_OUT or folder == left_out or _ENVIRONMENT in names or {*names} >= _RUN


def _add(packed: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file, a link as a link, or a folder without its content, with nothing that differs from time to time."""
    try:
        entry = packed.gettarinfo(path, name)
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
        if entry.isreg():
            with path.open("rb") as file:
                packed.addfile(entry, file)
        else:
            packed.addfile(entry)
    except OSError as fault:
        raise InputError(
            f"{path}: cannot be sent to the machines of the rack: {fault.strerror}: let it be read, or start wanbed in "
            "a folder without it"
        ) from None


_KNOWN = {"python", "folder"}
"""Placeholders that the machine that drives can fill in."""


class WantedProgram(NamedTuple):
    """A program that a machine must have: the field that names it, its name or path, and PATH if it is not Ray's."""

    field: str
    name: str
    path: str | None


class WantedFile(NamedTuple):
    """A file that a machine must have at the same path as the one that drives: the field, path, and SHA-256."""

    field: str
    path: str
    digest: str


@dataclass(frozen=True)
class ProgramNeeds:
    """The programs and files that a machine must have itself for users' programs."""

    programs: tuple[WantedProgram, ...] = ()
    files: tuple[WantedFile, ...] = ()


def program_needs(programs: Iterable[tuple[str, ResolvedProgram]], sent: SentFiles) -> ProgramNeeds:
    """Return what programs, each behind its field, need beside ``sent``.

    Raise InputError, naming the field, for a program or a file that is neither sent nor can be on the machines.
    """
    wanted: dict[WantedProgram, None] = {}
    files: dict[WantedFile, None] = {}
    for field, program in programs:
        for own, name in wanted_programs(program):
            wanted |= dict.fromkeys(_program(f"{field}.{own}", name, program, sent))
        for own, words in _arguments(program):
            for word in words:
                files |= dict.fromkeys(_file(f"{field}.{own}", word, program, sent))
    return ProgramNeeds(tuple(wanted), tuple(files))


def lacking_program(needs: ProgramNeeds) -> str | None:
    """Return what this machine lacks, with the field and the remedy, None if nothing."""
    for program in needs.programs:
        if (fault := program_fault(program.name, program.path or search_path())) is not None:
            return f"{program.field}: {shown(program.name)}: {fault}"
    for file in needs.files:
        remedy = "put it there, or start wanbed in a folder that has it"
        if not os.path.isfile(file.path):
            return f"{file.field}: {one_line(file.path)}: there is no such file there, and it is not sent: {remedy}"
        if _digest(file.path) != file.digest:
            return f"{file.field}: {one_line(file.path)}: it is another file than on the machine that drives: {remedy}"
    return None


def _program(field: str, name: str, program: ResolvedProgram, sent: SentFiles) -> Iterator[WantedProgram]:
    path = program.spec.env.get("PATH")
    if "python" in placeholders_in(name) or not placeholders_in(name) <= _KNOWN:
        # Each machine has a Python of its own, and the rest is known only on a host.
        return
    if "/" not in name:
        if path is None or not placeholders_in(path):
            yield WantedProgram(field, name, path)
        return
    here = _path(name, program)
    if sent.place(here) is None and os.path.isabs(name):
        yield WantedProgram(field, name, path)
    elif (fault := program_fault(here, "")) is not None:
        raise InputError(f"{field}: {shown(name)}: {fault}")
    elif sent.place(here) is None:
        raise InputError(f"{field}: {shown(name)}: {_not_sent(here, sent)}")


def _arguments(program: ResolvedProgram) -> Iterator[tuple[str, tuple[str, ...]]]:
    spec = program.spec
    yield "command", spec.command[1:]
    yield "setup", (spec.setup or ())[1:]
    yield from ((f"also.{number}.command", each.command[1:]) for number, each in enumerate(spec.also))


def _file(field: str, word: str, program: ResolvedProgram, sent: SentFiles) -> Iterator[WantedFile]:
    if not placeholders_in(word) <= {"folder"}:
        return
    here = _path(word, program)
    # A word may be a whole program, too long for the name of a file.
    if not os.path.isfile(here) or sent.place(here) is not None:
        return
    if not os.path.isabs(word):
        raise InputError(f"{field}: {shown(word)}: {_not_sent(here, sent)}")
    yield WantedFile(field, here, _digest(here))


def _path(word: str, program: ResolvedProgram) -> str:
    return os.path.normpath(os.path.join(Path.cwd(), filled(word, program.values_everywhere)))


def _not_sent(path: str, sent: SentFiles) -> str:
    roots = " and ".join(map(str, sent.roots))
    return f"{path} is not among the files that machines of a rack are sent, those of {roots}: start wanbed above it"


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()
