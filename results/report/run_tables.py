"""List the tables of one run, which the page, Markdown and JSON have alike, in this order."""

from wanbed.results.reading.run import Run
from wanbed.results.report.averages_table import averages_table
from wanbed.results.report.background_table import background_table
from wanbed.results.report.calibration_table import calibration_table
from wanbed.results.report.device_table import device_table
from wanbed.results.report.fault_table import fault_table
from wanbed.results.report.job_table import job_table
from wanbed.results.report.plan_outcome import plan_outcomes, plan_table
from wanbed.results.report.program_tables import program_tables
from wanbed.results.report.table import Table


def run_tables(run: Run) -> list[Table]:
    """Return the tables that a run has."""
    found = (
        *program_tables(run),
        fault_table(run),
        averages_table(run),
        job_table(run),
        background_table(run),
        plan_table(plan_outcomes(run)),
        device_table(run),
        calibration_table(run),
    )
    return [table for table in found if table is not None]
