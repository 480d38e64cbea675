"""List the tables of one run, which the page, Markdown and JSON have alike, in this order."""

from wanbed.results.report.averages_table import averages_table
from wanbed.results.report.background_table import background_table
from wanbed.results.report.calibration_table import calibration_table
from wanbed.results.report.device_table import device_table
from wanbed.results.report.fault_table import fault_table
from wanbed.results.report.job_table import job_table
from wanbed.results.report.plan_outcome import plan_table
from wanbed.results.report.program_tables import program_tables
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.report.table import Table


def run_tables(reported: ReportedRuns, label: str) -> list[Table]:
    """Return the tables that the run of this label has."""
    run = reported.by_label[label]
    found = (
        *program_tables(run),
        fault_table(run),
        averages_table(run),
        job_table(run, reported.headline_of(label)),
        background_table(run),
        plan_table(reported.plans[label]),
        device_table(run),
        calibration_table(run),
    )
    return [table for table in found if table is not None]
