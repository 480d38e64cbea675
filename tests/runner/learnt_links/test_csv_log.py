"""A log in CSV is read exactly, and the first mistake in it is one line with the file and the line's number."""

from pathlib import Path

import pytest

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.learnt_links.csv_log import HEADER, read_csv_log
from wanbed.runner.learnt_links.packet_log import LOST_NS


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "log.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_times_since_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    log = read_csv_log(
        written(
            tmp_path, "1700000000.123456789,1200,1700000000.163456790", "1700000000.2,80,", "1700000001,80,1700000002"
        )
    )
    assert log.send_ns.tolist() == [0, 76_543_211, 876_543_211]
    assert log.size_bytes.tolist() == [1200, 80, 80]
    assert log.arrival_ns.tolist() == [40_000_001, LOST_NS, 1_876_543_211]
    assert log.loss == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["1,1200,2", "0.5,1200,2"], ":3: this packet was sent before the one of the line above"),
        (["1,1200,0.9"], ":2: this packet arrives before it is sent"),
        (["1,1200,2", "-1,1200,2"], ":3: send_s: is negative"),
        (["1,1200,nan"], ":2: arrival_s: 'nan' is wrong"),
        (["inf,1200,"], ":2: send_s: 'inf' is wrong"),
        (["1,1200,2", "", "2,1200,3"], ":3: send_s: is empty"),
        (["1,1.5,2"], ":2: size_bytes: '1.5' is wrong"),
        (["1,0,2"], ":2: this packet has a size"),
        (["1,1200"], ":2: '1,1200' has 2 of 3 cells"),
        (["1,1200,2", "1,1200,2,3"], ":3: '1,1200,2,3' has 4 of 3 cells"),
        (["1.1234567891,1200,2"], ":2: send_s: '1.1234567891' is wrong"),
        (["9999999999,1200,"], ":2: send_s: '9999999999' is wrong"),
        ([], ": holds no packet"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, lines: list[str], place: str) -> None:
    path = written(tmp_path, *lines)
    assert refused(lambda: read_csv_log(path)).startswith(f"{path}{place}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"t,size\n1,2\n", r":1: 't,size' is no log of packets: its first line is send_s,size"),
        (b"", ": is empty"),
        (HEADER.encode() + b"\n1,1200,2\n\xff\xfe,1200,2\n", ": .*as UTF-8 text"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(InputError, match=f"log.csv{words}"):
        read_csv_log(tmp_path / "log.csv")


def test_a_mistake_beyond_the_first_block_has_its_line(tmp_path: Path) -> None:
    lines = [f"{number},1250,{number}.040000001" for number in range(500_000)]
    path = written(tmp_path, *lines, "400000,1250,x")
    assert path.stat().st_size > 10_000_000
    with pytest.raises(InputError, match=rf":{500_000 + 2}: arrival_s: 'x' is wrong"):
        read_csv_log(path)


@pytest.mark.filterwarnings("error")
def test_a_line_that_is_no_text_and_lacks_cells_is_refused_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_bytes(HEADER.encode() + b"\n1,1200,2\n1,\xe6\xff\n")
    with pytest.raises(InputError, match=r"log.csv:3: .* has 2 of 3 cells"):
        read_csv_log(tmp_path / "log.csv")
    assert capfd.readouterr().err == ""
