import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.ground.yaml_document import MAX_DEPTH, MAX_FILE_BYTES, MAX_VALUES, parse_yaml, read_document

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=12)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
KEYS = TEXT.filter(str.isprintable)
TREES = st.recursive(SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below, max_size=4))


def refusal(text: str) -> str:
    line = refused(lambda: parse_yaml(text))
    assert line.isprintable()
    return line


@given(TREES)
def test_what_yaml_writes_is_read_back(tree: Any) -> None:
    assert parse_yaml(yaml.safe_dump(tree, allow_unicode=True)) == tree


def test_anchors_and_merges_are_written_out() -> None:
    text = (
        "base: &base {rate: 1Gbit, latency: 1ms}\nmore: &more {<<: *base, rate: 2Gbit}\nlast: {<<: [*more], loss: 1%}"
    )
    assert parse_yaml(text) == {
        "base": {"rate": "1Gbit", "latency": "1ms"},
        "more": {"rate": "2Gbit", "latency": "1ms"},
        "last": {"rate": "2Gbit", "latency": "1ms", "loss": "1%"},
    }


def test_two_aliases_of_a_value_are_two_values() -> None:
    document = parse_yaml("one: &a [1]\nother: *a")
    document["one"].append(2)
    assert document["other"] == [1]


@pytest.mark.parametrize("text", ["2024-01-01", "=", "1e3", "40ms"])
def test_what_only_looks_like_another_type_is_text(text: str) -> None:
    assert parse_yaml(f"a: {text}") == {"a": text}


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(9, 9), bomb(30, 2), "b: &b {x: 1}\n" + "c: {<<: [" + "*b, " * 40_000 + "*b]}"])
def test_alias_bomb_is_refused_before_it_is_expanded(text: str) -> None:
    line = refusal(text)
    assert f"more than {MAX_VALUES} values once its aliases are expanded, use fewer" in line
    assert "line " in line


def test_a_bomb_of_merges_is_refused() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 9)]
    assert "aliases are expanded" in refusal("\n".join(lines))


def test_a_value_that_holds_itself_is_refused() -> None:
    assert refusal("a: &a [1, *a]") == "line 1: an alias is inside the value that it refers to"


def test_deep_nesting_is_refused() -> None:
    assert f"line 1: nested more than {MAX_DEPTH} deep" in refusal("[" * 50_000)
    assert parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_a_ladder_of_aliases_is_refused() -> None:
    assert f"nested more than {MAX_DEPTH} deep once its aliases" in refusal(bomb(100, 1))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: the field 'a' is given twice, leave one of them out"),
        (f"{'b' * 100}: 1\n{'b' * 100}: 1", f"line 2: the field '{'b' * 60}...' is given twice, leave one of them out"),
        ("a: *" + "b" * 1000, f"line 1: not YAML: found undefined alias '{'b' * 37}..."),
        ("a: {b: 1, b: 1}", "line 1: the field 'b' is given twice, leave one of them out"),
        ("x: 1\nyes: 2", "line 2: a field's name must be text, not the bool 'yes': put it in quotes"),
        ("? [1, 2]\n: 3", "line 1: a field's name must be text, not a list: put it in quotes"),
        ('"a\\nb": 1', "line 1: the field 'a\\nb' has unprintable characters in its name"),
        ("a: !!python/object:os.system x", "line 1: the tag 'python/object:os.system' is not supported"),
        ("a: !!set {x}", "line 1: the tag 'set' is not supported"),
        ("a: [1, 2", "line 1: not YAML: "),
        ("a: 1\n b: 2", "line 2: not YAML: mapping values are not allowed here"),
        ("a: *b", "line 1: not YAML: found undefined alias 'b'"),
        ("a: 1\n---\nb: 2", "line 2: not YAML: "),
        ("a: 1\nb: \x07", "line 2: a control character, which YAML does not allow: remove it"),
        ("a: " + "9" * 5000, f"line 1: '{'9' * 60}...' has more than 40 digits"),
        ('a: "\\ud800"', "line 1: '\\ud800' has half of a surrogate pair: write the whole character"),
        ("a: .inf", "line 1: '.inf' is not a finite number"),
        ("a: 1\nb: -1.0e+999", "line 2: '-1.0e+999' is not a finite number"),
        ("a: .nan", "line 1: '.nan' is not a finite number"),
        ("<<: 5", "line 1: not YAML: "),
        ("a: <<", "line 1: '<<' merges a mapping into another, and is no value: put text in quotes"),
        ("? !!str [a]\n: 2", "line 1: a field's name must be text, not a list: put it in quotes"),
        ("? !!str {a: 1}\n: 2", "line 1: a field's name must be text, not a mapping: put it in quotes"),
        ('a: 1\nb: "\\UFFFFFFFF"', "line 2: not YAML: a number is too large"),
    ],
)
def test_bad_yaml_is_refused_in_one_line_with_its_place(text: str, line: str) -> None:
    assert refusal(text).startswith(line)


@pytest.mark.parametrize("value", ["!!bool zz", "!!bool ''", "!<tag:yaml.org,2002:bool> zz"])
def test_what_is_tagged_as_true_or_false_is_one_of_them(value: str) -> None:
    assert "cannot be read as true or false: correct it, or put text in quotes" in refusal(f"a: {value}")


@pytest.mark.parametrize("value", ["!!int ''", "!!int '_'", "!!int x", "!!int ٣", "!!int", "0x_", "0b_"])
def test_what_is_tagged_or_written_as_a_whole_number_is_one(value: str) -> None:
    text = "cannot be read as a whole number: correct it, or put text in quotes"
    assert refusal(f"a: 1\nb: {value}").endswith(text)
    assert refusal(f"a: 1\nb: {value}").startswith("line 2: ")


@pytest.mark.parametrize("value", ["!!float ''", "!!float '_'", "!!float x", "!!float ٣", f"!!float {'1:' * 400}1"])
def test_what_is_tagged_as_a_number_is_one(value: str) -> None:
    assert refusal(f"a: {value}").endswith("cannot be read as a number: correct it, or put text in quotes")


def test_a_list_or_a_mapping_is_no_scalar() -> None:
    assert refusal("a: !!int [1]").startswith("line 1: a list cannot be read as a whole number")
    assert refusal("a: !!bool {b: 1}").startswith("line 1: a mapping cannot be read as true or false")


def test_a_tag_of_a_prefix_is_checked_as_the_tag_itself() -> None:
    line = refusal("%TAG !y! tag:yaml.org,2002:\n---\na: !y!bool zz")
    assert line == "line 3: 'zz' cannot be read as true or false: correct it, or put text in quotes"


@pytest.mark.parametrize("number", ["1:30", "1_0", "0x1F", "0b11", "010", "+1_000"])
def test_a_whole_number_is_written_in_plain_digits(number: str) -> None:
    assert refusal(f"a: {number}") == (
        f"line 1: '{number}' cannot be read as a whole number: correct it, or put text in quotes"
    )
    assert parse_yaml(f"a: '{number}'") == {"a": number}
    assert parse_yaml("a: [0, 10, -3, +4]") == {"a": [0, 10, -3, 4]}


@pytest.mark.parametrize("number", ["1:30.5", "1_0.5"])
def test_a_number_is_written_in_plain_digits(number: str) -> None:
    assert f"'{number}' cannot be read as a number" in refusal(f"a: {number}")


@pytest.mark.parametrize("word", ["yes", "No", "on", "OFF"])
def test_a_boolean_is_true_or_false(word: str) -> None:
    assert f"'{word}' cannot be read as true or false" in refusal(f"a: {word}")
    assert parse_yaml("a: [true, False]") == {"a": [True, False]}


def test_a_tag_may_say_what_a_value_is_anyway() -> None:
    assert parse_yaml("{a: !!bool true, b: !!int '5', c: !!float 1}") == {"a": True, "b": 5, "c": 1.0}


TAGS = st.sampled_from(("!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map", "!!merge"))


@given(TAGS, st.text(alphabet="'_:-+.0x1b[]{}<~ ,٣", max_size=12))
def test_any_text_with_a_tag_is_a_tree_or_one_line(tag: str, text: str) -> None:
    line = ""
    try:
        parse_yaml(f"a: {tag} {text}")
    except InputError as refused:
        line = str(refused)
    assert line.isprintable()


@given(st.text(alphabet="ab:&*<>[]{}-!?|'\"#,% \n\t0.9=~", max_size=40))
def test_any_text_is_a_tree_or_one_line(text: str) -> None:
    line = ""
    try:
        parse_yaml(text)
    except InputError as refused:
        line = str(refused)
    assert line.isprintable()


def test_a_file_is_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes("\ufeffname: größer\n".encode())
    assert read_document(path) == {"name": "größer"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty, not a mapping: write fields like `name: value`"),
        (b"# only a remark\n", "empty, not a mapping"),
        (b"- 1\n- 2\n", "a list, not a mapping"),
        (b"just text", "a single value, not a mapping"),
        (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text: save it as UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_holds_no_mapping_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(content)
    assert refused(lambda: read_document(path)).startswith(f"{path}: {text}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml: cannot be read \(No such file or directory\): give the path"):
        read_document(tmp_path / "missing.yaml")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        read_document(tmp_path)


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_document(Path("a\0b"))


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads everything, so that a mode would not show this.
    def refuse(*_: Any) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"exp\.yaml: cannot be read \(Permission denied\)"):
        read_document(tmp_path / "exp.yaml")


def test_a_file_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_document(path)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(InputError, match="it is a device, not a regular file"):
        read_document(Path("/dev/zero"))
