"""Tell what has to be known of an emulated run before it begins, wherever it runs."""

from collections.abc import Sequence

from wanbed.ground.strict_model import InputError
from wanbed.results.reading.not_modelled import not_modelled_text
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.cut_connections import cut_lines
from wanbed.runner.runs.not_modelled import planned_without
from wanbed.runner.runs.recorded.placement_searches import cut_off_lines
from wanbed.runner.runs.recorded.profile_record import deterministic_profile_lines
from wanbed.runner.runs.run_folder import Log


def tell_beforehand(points: Sequence[SweepPoint], *, keep_gradients: bool, log: Log) -> None:
    """Tell what may surprise in the figures. Raise InputError if gradients are to be kept of a back end without any."""
    for line in (*deterministic_profile_lines(points), *cut_lines(points), *cut_off_lines(points)):
        log(line)
    for backend in (point.spec.compute.backend for point in points if keep_gradients):
        if not backend.trains:
            raise InputError(f"--keep-gradients: {backend.title} makes none: give compute: {{kind: torch}}")
    if without := not_modelled_text(each for point in points for each in planned_without(point.spec, point.topology)):
        log(f"placement auto: the planner simulates, and does not model {without}")
