"""Define the section ``program`` of a variant: a program of the user's that trains in place of a schedule.

The words of its command may have placeholders, like ``{rank}``: a lower-case name in braces. ``{{rank}}`` stands for
the text ``{rank}``; braces around anything else, as in JSON or a Python program, stay as they are.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from wanbed.ground.errors import did_you_mean, shown
from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import DurationNs, SizeBytes
from wanbed.results.records.span_log import MAX_ITERATIONS
from wanbed.runner.experiment.quantities import PrintableName, Truth, whole_number
from wanbed.workloads.collective.collective_config import opened_way

OF_A_RANK = ("rank", "local_rank")
"""Placeholders that are known only where wanbed itself starts each process."""

PLACEHOLDERS = (
    "python",
    "folder",
    "host",
    "datacenter",
    "hosts",
    "host_index",
    *OF_A_RANK,
    "world_size",
    "local_world_size",
    "rendezvous_host",
    "rendezvous_address",
    "rendezvous_port",
)

_BRACED = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


def check_placeholders(word: str) -> None:
    """Raise ValueError for a name in braces that is no placeholder."""
    for escaped, name in _BRACED.findall(word):
        if not escaped and name not in PLACEHOLDERS:
            remedy = did_you_mean(name, PLACEHOLDERS, f"known here: {', '.join(PLACEHOLDERS)}")
            raise ValueError(f"{{{name}}} is no placeholder: {remedy}, or write {{{{{name}}}}} for the text itself")


def placeholders_in(word: str) -> set[str]:
    """Return the names of the placeholders of a word."""
    return {name for escaped, name in _BRACED.findall(word) if not escaped}


def filled(word: str, values: Mapping[str, str]) -> str:
    """Return the word with ``values`` in place of its placeholders. Raise KeyError for one that has no value."""
    return _BRACED.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], word)


MAX_PROCESSES_PER_HOST = 256

MAX_WORDS, MAX_WORD_LENGTH = 1000, 100_000

MAX_OUTPUT_BYTES = 2**30

MAX_TIMEOUT_NS = 24 * 3600 * 10**9

MAX_TOKENS = 10**12

_HOOK_VARIABLE = "WANBED_HOOK"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _word(written: object) -> str:
    if not isinstance(written, str):
        raise ValueError(f"{shown(written)} is not text: put it in quotes")
    if len(written) > MAX_WORD_LENGTH or "\0" in written:
        raise ValueError(f"{shown(written)} is no word of a command: give up to {MAX_WORD_LENGTH} characters, no NUL")
    check_placeholders(written)
    return written


def _words(written: object) -> tuple[str, ...]:
    if not isinstance(written, list | tuple) or not 1 <= len(written) <= MAX_WORDS:
        raise ValueError(f"{shown(written)} is no list of words: write a command like [python, train.py]")
    words = []
    for position, entry in enumerate(written):
        try:
            words.append(_word(entry))
        except ValueError as refusal:
            raise ValueError(f"entry {position}: {refusal}") from None
    if not words[0].strip():
        raise ValueError("entry 0: the program's name is empty")
    return tuple(words)


def _environment(written: object) -> dict[str, str]:
    if not isinstance(written, Mapping):
        raise ValueError(f'{shown(written)} is not a mapping, like {{OMP_NUM_THREADS: "1"}}')
    values = {}
    for name, value in written.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is no name of a variable: give letters, digits and underscores")
        if name == _HOOK_VARIABLE:
            raise ValueError(f"the variable {name} is wanbed's own: leave it out")
        try:
            values[name] = _word(value)
        except ValueError as refusal:
            raise ValueError(f"the value of {name}: {refusal}") from None
        if (why := opened_way(name, values[name])) is not None:
            raise ValueError(f"the value of {name}: {why}")
    return values


def _pattern(written: object) -> str:
    if not isinstance(written, str) or not written:
        raise ValueError(f"{shown(written)} is no regular expression: give a text, like 'step [0-9]+'")
    try:
        re.compile(written)
    except (re.error, RecursionError) as fault:
        raise ValueError(f"{shown(written)} is no regular expression: {fault}") from None
    return written


def _output_limit_bytes(size_bytes: int) -> int:
    if not 1024 <= size_bytes <= MAX_OUTPUT_BYTES:
        raise ValueError("it is not from 1KiB to 1GiB")
    return size_bytes


def _timeout_ns(duration_ns: int) -> int:
    if not 10**9 <= duration_ns <= MAX_TIMEOUT_NS:
        raise ValueError("it is not from 1s to 86400s")
    return duration_ns


Words = Annotated[
    tuple[str, ...],
    PlainValidator(
        _words, json_schema_input_type=Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_WORDS)]
    ),
    PlainSerializer(list),
]
"""A command: a program's name or path, and its arguments."""


class HostCommandSpec(StrictModel):
    """A program beside those that train, on one host, for the length of each trial."""

    host: PrintableName = Field(description="Host that it runs on.", examples=["east-0"])
    command: Words = Field(
        description="The program and its arguments.", examples=[["torchft_lighthouse", "--min_replicas", "2"]]
    )


class ProgramSpec(StrictModel):
    """A program of your own that trains in place of a schedule, one or more processes on each host.

    In the words of commands and in values of variables, `{rank}`, `{local_rank}`, `{world_size}`, `{local_world_size}`,
    `{host}`, `{host_index}`, `{hosts}` (their number), `{datacenter}`, `{rendezvous_host}`, `{rendezvous_address}`,
    `{rendezvous_port}`, `{python}` (the Python that runs wanbed) and `{folder}` (that of the experiment file) are
    filled in; `{{rank}}` is the text `{rank}`.
    """

    command: Words = Field(
        description="The program and its arguments, as a list of words. It starts in the current folder.",
        examples=[["python", "train.py", "--lr", "0.1"]],
    )
    launcher: Literal["none", "torchrun"] = Field(
        default="none",
        description="How processes start. `none`: wanbed starts each and gives it RANK, WORLD_SIZE, LOCAL_RANK, "
        "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `torchrun`: torch's launcher on each host starts them.",
        examples=["torchrun"],
    )
    rendezvous: Literal["c10d", "static"] | None = Field(
        default=None,
        description="How torch's launchers meet, only with `launcher: torchrun`. With `c10d` they agree on the ranks, "
        "with `static` ranks follow the order of hosts. Default: c10d with torchrun.",
        examples=["static"],
    )
    processes_per_host: Annotated[int, whole_number(1, MAX_PROCESSES_PER_HOST)] | None = Field(
        default=None,
        description="Number of processes on each host, at most its GPUs. Default: as many as it has GPUs.",
        examples=[2],
    )
    iterations: Annotated[int, whole_number(2, MAX_ITERATIONS)] | None = Field(
        default=None,
        description="Number of iterations of a trial, those of the warm-up and those profiled included. After them "
        "the program is ended. Default: training.iterations.",
        examples=[20],
    )
    warmup: Annotated[int, whole_number(1, MAX_ITERATIONS)] | None = Field(
        default=None,
        description="Number of first iterations that count in no figure; the first one, which begins with the program, "
        "never does. Default: training.warmup.",
        examples=[5],
    )
    profile: Annotated[int, whole_number(0, MAX_ITERATIONS)] | None = Field(
        default=None,
        description="Number of last iterations that torch's profiler records. They give GPUs' time, collectives and "
        "their sizes, and do not count in iteration times. Default: 1, but 0 where a pattern marks iterations.",
        examples=[2],
    )
    marked_by: Literal["optimizer", "call", "output"] | None = Field(
        default=None,
        description="What ends an iteration: a step of the `optimizer` of torch that steps first, a `call` of "
        "`wanbed.mark_iteration()`, or a line of standard `output` that has the `pattern`. Default: output with a "
        "pattern, otherwise optimizer.",
        examples=["call"],
    )
    pattern: (
        Annotated[str, PlainValidator(_pattern, json_schema_input_type=Annotated[str, Field(min_length=1)])] | None
    ) = Field(
        default=None,
        description="Regular expression of Python's; each line of standard output in which it is found ends an "
        "iteration. Default: none.",
        examples=["step [0-9]+"],
    )
    setup: Words | None = Field(
        default=None,
        description="Command that runs on every host before the processes of each trial, and has to end with status 0. "
        "Default: none.",
        examples=[["python", "prepare.py"]],
    )
    also: tuple[HostCommandSpec, ...] = Field(
        default=(),
        description="Programs beside the processes, like a lighthouse or a store.",
        examples=[[{"host": "east-0", "command": ["torchft_lighthouse", "--min_replicas", "2"]}]],
    )
    env: Annotated[dict[str, str], PlainValidator(_environment, json_schema_input_type=dict[str, str])] = Field(
        default_factory=dict,
        description="Variables of the environment, beside those of the command `wanbed run`.",
        examples=[{"OMP_NUM_THREADS": "1"}],
    )
    read_only: Truth = Field(
        default=False, description="Whether programs can only read the current folder.", examples=[True]
    )
    timeout: Annotated[DurationNs, AfterValidator(_timeout_ns)] = Field(
        default=300 * 10**9,
        description="The longest time without the end of an iteration, from 1s to 86400s. After it the trial fails.",
        examples=["600s"],
    )
    output_limit: Annotated[SizeBytes, AfterValidator(_output_limit_bytes)] = Field(
        default=64 * 2**20,
        description="How much a process may print to each of standard output and error, from 1KiB to 1GiB. More of it "
        "ends the trial.",
        examples=["1MiB"],
    )
    tokens: Annotated[int, whole_number(1, MAX_TOKENS)] | None = Field(
        default=None,
        description="Number of tokens that all processes together train on in one iteration. Default: unknown, and so "
        "are tokens per second.",
        examples=[65536],
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_launcher_and_marks(cls, written: object) -> object:
        if not isinstance(written, Mapping):
            return written
        by_pattern = written.get("pattern") is not None
        defaults: dict[str, object] = {"marked_by": "output" if by_pattern else "optimizer"}
        if written.get("launcher") == "torchrun":
            defaults["rendezvous"] = "c10d"
        marked_by = written.get("marked_by") or defaults["marked_by"]
        defaults["profile"] = 0 if marked_by == "output" else 1
        return {**written, **{name: value for name, value in defaults.items() if written.get(name) is None}}

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what only torchrun has, and what goes with one way of marking iterations only."""
        by_output, too_late = self.marked_by == "output", "a line of output comes too late to start a profiler"
        torchrun = self.launcher == "torchrun"
        return (
            Exclusion("rendezvous", "only torchrun has one", "give launcher: torchrun", when=not torchrun),
            Exclusion("pattern", f"iterations are marked by {self.marked_by}", when=not by_output),
            Exclusion("profile", too_late, "give marked_by: call", when=by_output and self.profile != 0),
        )

    @model_validator(mode="after")
    def _fields_belong_together(self) -> "ProgramSpec":
        if self.marked_by == "output" and self.pattern is None:
            raise ValueError("pattern: lines that end an iteration are found by it: give one, like 'step [0-9]+'")
        self._check_ranks_are_known()
        return self

    def _check_ranks_are_known(self) -> None:
        elsewhere: dict[str, tuple[str, ...]] = {"setup": self.setup or ()}
        elsewhere |= {f"also.{position}.command": each.command for position, each in enumerate(self.also)}
        if self.launcher == "torchrun":
            elsewhere |= {"command": self.command, "env": tuple(self.env.values())}
        for field, words in elsewhere.items():
            for name in OF_A_RANK:
                if any(name in placeholders_in(word) for word in words):
                    known = (
                        f"torchrun sets {name.upper()}: read it from the environment"
                        if self.launcher == "torchrun" and field in {"command", "env"}
                        else "it belongs to no process that trains"
                    )
                    raise ValueError(f"{field}: {{{name}}} is not known here, {known}")

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value not in (None, (), [], {})}
