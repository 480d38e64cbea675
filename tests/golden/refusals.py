"""Put wrong values into every field that a shipped experiment has, and collect the message of each refusal."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.golden.simulated_bytes import shipped
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment

Steps = tuple[str | int, ...]
WRONG: Mapping[str, Any] = {
    "a word": "nonsense",
    "less than nothing": -1,
    "a list": [[]],
    "a mapping": {"nonsense": 1},
    "nothing": None,
}


def refusals() -> Iterator[tuple[str, str]]:
    """Yield the name of each wrong value and its message, "accepted" if it is right there."""
    met: set[str] = set()
    for file in shipped():
        document = yaml.safe_load(file.read_text())
        for steps in _fields(document, ()):
            # Of an entry of a list the first one stands for all, in whatever file.
            path = ".".join("0" if isinstance(step, int) else step for step in steps)
            if path not in met:
                met.add(path)
                for kind, value in WRONG.items():
                    yield f"{file.stem} {path} {kind}", _message(document, steps, value, file.parent)


def _fields(document: Any, steps: Steps) -> Iterator[Steps]:
    """Yield the path of every value, and of a field that does not exist beside it."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*steps, key)
        if isinstance(value, dict | list):
            yield from _fields(value, (*steps, key))
    if isinstance(document, dict):
        yield (*steps, "unknown")


def _message(document: Any, steps: Steps, value: Any, directory: Path) -> str:
    changed = copy.deepcopy(document)
    inner = changed
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    try:
        parse_experiment(changed, "file.yaml", directory).points()
    except InputError as refusal:
        return str(refusal)
    return "accepted"
