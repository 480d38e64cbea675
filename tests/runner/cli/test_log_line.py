import pytest

from wanbed.runner.cli.log_line import log


def test_a_name_in_a_line_does_not_reach_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    log("machine \x1b[31mred\u202e\n is lost")
    assert capsys.readouterr().err == "wanbed: machine \\x1b[31mred\\u202e is lost\n"
