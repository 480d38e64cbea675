from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.two_jobs import two_jobs
from wanbed.runner.planner.experiment_file import parse_experiment


def refusal(document: dict[str, Any]) -> str:
    return refused(lambda: parse_experiment(document, "file", Path()))


def job(name: str, variants: list[str], **hosts: int) -> dict[str, Any]:
    return {"name": name, "hosts": hosts, "variants": variants}


OURS, THEIRS = job("a", ["ours"], east=2, west=2), job("b", ["theirs"], east=2, west=2)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([OURS], "a single one shares the WAN with nobody: give two or more"),
        ([OURS, {**THEIRS, "name": "a"}], "jobs.1.name: 'a' is given twice"),
        ([OURS, job("b", ["thiers"], east=2)], "jobs.1.variants: no variant 'thiers', did you mean 'theirs'?"),
        ([OURS, job("b", ["theirs", "ours"], east=2)], "jobs.1.variants: 'ours' is a variant of 'a' already"),
        ([OURS, job("b", [], east=2)], "a job needs a variant to run"),
        ([OURS, job("b", ["theirs"])], "a job without hosts trains nothing"),
        ([OURS, job("b", ["theirs"], east=2, nrth=2)], "jobs.1.hosts: no datacenter 'nrth', there are east, west"),
        ([OURS, job("b", ["theirs"], east=2, west=3)], "jobs.1.hosts.west: 3 hosts, where 2 of 4 are left"),
        ([OURS, {**THEIRS, "iterations": 1}], "jobs.1.iterations: 1, of which 1 warm up, leaves none to measure"),
    ],
)
def test_jobs_that_cannot_run_at_once_are_refused_with_field_and_remedy(jobs: list[dict[str, Any]], words: str) -> None:
    assert words in refusal(two_jobs(jobs=jobs))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"variants": [*two_jobs()["variants"], {"name": "third", "schedule": "gpipe"}]},
            "variants.2: no job has 'third': add it to one, or leave it out",
        ),
        (
            {
                "variants": [
                    two_jobs()["variants"][0],
                    {"name": "theirs", "program": {"command": ["true"], "iterations": 2}},
                ]
            },
            ": variants.1.program: only trainings by a schedule of wanbed's ranks",
        ),
        ({"fail": [{"rank": 0, "at": "1s"}]}, ": fail: nothing is let fail beside another job"),
    ],
)
def test_variants_of_no_job_programs_and_faults_do_not_go_with_jobs(changes: dict[str, Any], words: str) -> None:
    said = refusal(two_jobs(**changes))
    assert words in said
    assert "the document" not in said


def test_an_experiment_without_jobs_keeps_its_document_and_hash() -> None:
    document = two_jobs()
    del document["jobs"]
    experiment = parse_experiment(document, "file", Path())
    assert "jobs" not in experiment.document()
    assert parse_experiment(experiment.document(), "file", Path()).config_hash == experiment.config_hash
