"""Read the hook's configuration: the JSON file that WANBED_HOOK names."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

OPTIMIZER, CALL = "optimizer", "call"

_HEADER = {"rank": int, "host": str, "datacenter": str, "gpu": int, "pipeline": int, "stage": int}


class HookConfig(NamedTuple):
    """One process of the program.

    - ``log``: path of the span log, which must not exist yet.
    - ``header``: what the log says of its owner.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the log.
    - ``iterations``: nothing is recorded after so many; the last ``profile`` of them are recorded by torch.profiler.
    - ``marked_by``: what ends an iteration, a step of the first optimizer or a call.
    """

    log: str
    header: dict[str, Any]
    epoch_ns: int
    iterations: int
    profile: int
    marked_by: str


def read_config(path: str) -> HookConfig:
    """Return the configuration. Raise ValueError, with the file and the field, if the file is not as it has to be."""
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    if not isinstance(fields, dict):
        raise ValueError(f"{path}: is no JSON object")
    config = HookConfig(
        log=_field(path, fields, "log", str),
        header={name: _field(path, _field(path, fields, "header", dict), name, kind) for name, kind in _HEADER.items()},
        epoch_ns=_field(path, fields, "epoch_ns", int),
        iterations=_field(path, fields, "iterations", int),
        profile=_field(path, fields, "profile", int),
        marked_by=_field(path, fields, "marked_by", str),
    )
    if config.iterations < 1:
        raise ValueError(f"{path}: iterations: {config.iterations} is less than 1")
    if not 0 <= config.profile < config.iterations:
        raise ValueError(f"{path}: profile: has to be 0 to {config.iterations - 1}, is {config.profile}")
    if config.marked_by not in (OPTIMIZER, CALL):
        raise ValueError(f"{path}: marked_by: {config.marked_by!r} is neither {OPTIMIZER!r} nor {CALL!r}")
    return config._replace(log=os.path.abspath(config.log))


def _field(path: str, fields: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(fields.get(name), kind) or isinstance(fields[name], bool):
        raise ValueError(f"{path}: {name}: is missing or no {kind.__name__}")
    return fields[name]
