from pathlib import Path

import pytest

from wanbed.ground.errors import MAX_DIGITS, InputError
from wanbed.ground.json_document import MAX_FILE_BYTES, parse_content, read_content


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "menu.json").write_text('{"soup": 3, "bread": [1.5, "dark"]}')
    content = read_content(tmp_path / "menu.json", "menu")
    assert parse_content(content, "menu.json", "menu", "the one on the wall") == {"soup": 3, "bread": [1.5, "dark"]}


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b" " * (MAX_FILE_BYTES + 1), f"larger than {MAX_FILE_BYTES} bytes, which no menu is"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (
            b'{"soup": ' + b"3" * (MAX_DIGITS + 1) + b"}",
            f"a number in it has {MAX_DIGITS + 1} digits, more than {MAX_DIGITS}",
        ),
        (b"[]", "a menu is an object, write it like the one on the wall"),
    ],
)
def test_a_content_that_is_no_object_within_the_bounds_is_refused(content: bytes, refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_content(content, "menu.json", "menu", "the one on the wall")
    assert str(refused.value) == f"menu.json: {refusal}"


def test_a_content_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "menu.json").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 5)
    assert len(read_content(tmp_path / "menu.json", "menu")) == MAX_FILE_BYTES + 1


@pytest.mark.parametrize(
    ("name", "reason"), [("none", "No such file or directory"), ("nul\0byte", "embedded null byte")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        read_content(tmp_path / name, "menu")
    assert str(refused.value).endswith(f"{reason}, give a readable menu")
