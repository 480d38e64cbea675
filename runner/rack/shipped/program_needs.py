"""Say what users' programs want of a machine beside the files that it is sent, and whether it has that."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from wanbed.ground.shown_text import one_line, shown
from wanbed.ground.strict_model import InputError
from wanbed.runner.trainings.program.on_hosts import program_fault, wanted_programs
from wanbed.runner.trainings.program.resolution import ResolvedProgram
from wanbed.runner.trainings.program.spec import filled, placeholders_in
from wanbed.testbed.hosts.search_path import search_path
from wanbed.testbed.rack.sent_files import SentFiles

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
