"""Read and resolve an experiment's file. The planner chooses places that are ``auto``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanbed.runner.experiment.experiment_document import ExperimentDocument

if TYPE_CHECKING:
    from wanbed.runner.resolve.experiment import Experiment
    from wanbed.runner.resolve.pipeline_variant import PlannedPlacement
    from wanbed.runner.resolve.written_variant import WrittenVariant


def load_experiment(
    path: Path, overrides: Sequence[str] = (), *, engine: str | None = None, trains: bool = True
) -> "Experiment":
    """Read an experiment's file, apply ``overrides`` (each a ``path=value``) and resolve every sweep point.

    ``engine`` replaces the file's engine unless it is None. Paths of topologies and profiles are relative to the
    experiment's file. ``name`` defaults to the file's name without its ending. Pass ``trains=False`` to read an
    experiment for its network alone. No file is written.

    Raises InputError: one line with file, field and remedy.
    """
    document = ExperimentDocument.read(path, overrides)
    return resolve_document(document if engine is None else document.on_engine(engine), trains=trains)


def parse_experiment(document: Mapping[str, Any], source: str, directory: Path, *, trains: bool = True) -> "Experiment":
    """Resolve the experiment of such fields, as ``Experiment.document`` gives them: see ``ExperimentDocument``."""
    return resolve_document(ExperimentDocument.of(document, source, directory), trains=trains)


def resolve_document(document: ExperimentDocument, *, trains: bool = True) -> "Experiment":
    """Resolve an experiment's document (see ``resolve_experiment``) with the planner for places that are ``auto``."""
    from wanbed.runner.resolve.experiment import resolve_experiment  # noqa: PLC0415 - spared by a file that cannot be read

    return resolve_experiment(document, _planned_places, trains=trains)


def _planned_places(written: "WrittenVariant", pipelines: int) -> "PlannedPlacement":
    # The simulator comes with the planner, and most files say where stages are.
    from wanbed.runner.planner.planning import planned_places  # noqa: PLC0415

    return planned_places(written, pipelines)
