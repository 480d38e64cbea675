"""Hold an experiment as it is written: in a file with its overrides, in a run's manifest, or in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from wanbed.ground.errors import prefixed
from wanbed.ground.strict_model import parse_model
from wanbed.ground.yaml_document import read_document
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.field_path import override_source, with_override
from wanbed.testbed.network.topology_spec import TopologySpec


@dataclass(frozen=True)
class ExperimentDocument:
    """The fields of an experiment as written, with its topology in place of a path to it.

    ``source`` starts error messages; ``directory`` is where relative paths in the fields begin.
    """

    fields: Mapping[str, Any]
    source: str
    directory: Path

    @classmethod
    def of(cls, fields: Mapping[str, Any], source: str, directory: Path) -> Self:
        """Return the document of such fields. Raise InputError if a topology's file cannot be read or is none."""
        written = fields.get("topology")
        if isinstance(written, str):
            path = directory / written
            with prefixed(f"{source}: topology: "):
                topology = read_document(path)
            parse_model(TopologySpec, topology, str(path))
            fields = {**fields, "topology": topology}
        return cls(fields, source, directory)

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Return the document of a file with ``overrides`` applied, each a ``path=value``.

        ``name`` defaults to the file's name without its suffix. Raise InputError, one line with file, field and remedy.
        """
        document = cls.of({"name": _file_name(path), **read_document(path)}, str(path), path.parent)
        for override in overrides:
            document = document.overridden(override)
        return document

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The fields, parsed. Raise InputError, one line that starts with the source."""
        return parse_model(ExperimentSpec, self.fields, self.source)

    def overridden(self, override: str) -> Self:
        """Return the document with the value of a ``path=value``, which messages name beside their source."""
        changed = self.of(with_override(self.fields, override), "--set topology", self.directory)
        return replace(changed, source=f"{self.source} {override_source(override)}")

    def on_engine(self, engine: str) -> Self:
        """Return the document with another engine."""
        return replace(self, fields={**self.fields, "engine": engine})


def _file_name(path: Path) -> str:
    return path.stem if path.stem.isprintable() and len(path.stem) <= 80 else "experiment"
