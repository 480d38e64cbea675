"""``wanbed learn-link`` as a user calls it."""

import errno
import json
from pathlib import Path

import pytest

import wanbed.runner.cli.learn_link as command
from tests.support.runner.commands_here import called, wanbed
from tests.support.runner.known_links import KnownLink, known_log, write_log
from wanbed.runner.learnt_links import link_page
from wanbed.runner.learnt_links.csv_log import HEADER


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(known_log(KnownLink(), seconds=20), tmp_path / "path.csv")


def test_it_writes_traces_page_and_document(log: Path) -> None:
    document = json.loads(called("learn-link", str(log), "--no-cell", "--json").stdout)
    folder = log.with_name("path-link")
    names = ["cross-traffic.csv", "link.html", "link.json", "trace.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert json.loads((folder / "link.json").read_text()) == document
    assert document["link"]["rate_bps"] == pytest.approx(20e6, rel=0.03)
    assert list(document["held_out"]) == ["log", "learnt link", "condition trace", "constant link"]
    page = (folder / "link.html").read_text()
    assert "A link learnt from path.csv" in page
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_full_disk_leaves_no_part_of_the_files(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(link_page, "write_link_page", full)
    called("learn-link", str(log), "--no-cell", status=2)
    assert list(log.with_name("path-link").iterdir()) == []


def test_it_prints_the_link_and_the_replays(log: Path, tmp_path: Path) -> None:
    done = called("learn-link", str(log), "--no-cell", "--output", str(tmp_path / "a" / "b"))
    assert "base delay: 30.0" in done.stdout
    assert "constant link" in done.stdout
    assert (tmp_path / "a" / "b" / "trace.csv").is_file()


def test_without_torch_the_fit_works_and_one_line_says_what_is_left_out(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = called("learn-link", str(log), "--json")
    assert done.stderr.count("torch is not installed, so the recurrent cell was left out") == 1
    assert "recurrent cell" not in json.loads(done.stdout)["held_out"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--piece", "100"], "wanbed: --piece: '100' is not a duration"),
        (["--piece", "1us"], "wanbed: --piece: 1us is below 1ms"),
        (["--receiver", "nowhere.pcap"], "is no capture: with --receiver"),
    ],
)
def test_a_bad_option_is_one_line(log: Path, arguments: list[str], line: str) -> None:
    done = called("learn-link", str(log), *arguments, status=2)
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_log_is_one_line_with_its_place(log: Path) -> None:
    log.write_text(f"{HEADER}\n1,1200,2\n0.5,1200,2\n")
    done = called("learn-link", str(log), status=2)
    assert (
        done.stderr
        == f"wanbed: {log}:3: this packet was sent before the one of the line above: sort the log by send_s\n"
    )


def test_a_log_that_shows_no_link_is_one_line(log: Path) -> None:
    log.write_text("\n".join([HEADER, *(f"{number},1200,{number}.04" for number in range(400))]) + "\n")
    done = called("learn-link", str(log), status=2)
    assert done.stderr.startswith(f"wanbed: {log}: only 0 of 200 packets queued behind the one before")


def test_a_probe_wants_a_host_or_to_receive() -> None:
    done = wanbed("probe")
    assert (done.exit_code, done.stderr.startswith("wanbed: HOST: give the host to send to")) == (2, True)
