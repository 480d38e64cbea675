"""Read the YAML that users write, within bounds. Any fault in a document is an InputError of one line.

The result is a tree of JSON's types: dictionaries with text keys, lists, text, numbers, booleans and None. Anchors,
aliases and ``<<`` merges are expanded, within the bounds below. Dates stay text. Tags of other types are refused, and
so is what YAML 1.1 alone reads as a number or a boolean: ``1:30``, ``1_0``, ``0x1F``, ``010``, ``yes``, ``off``.
"""

import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from wanbed.ground.errors import MAX_DIGITS, InputError, prefixed, shortened, shown
from wanbed.ground.files import read_bounded

MAX_FILE_BYTES = 2**20
MAX_VALUES = 100_000
MAX_DEPTH = 40

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_PLAIN_TAGS = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map")}


_DIGITS = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_KINDS: dict[type[yaml.Node], str] = {yaml.SequenceNode: "list", yaml.MappingNode: "mapping"}


class _Fault(yaml.MarkedYAMLError):
    """A fault at one place of a document that may be valid YAML but is not accepted."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _BoundedLoader(yaml.SafeLoader):
    """A safe loader that bounds the size and depth of expanded aliases while it reads, before objects are built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._extents: dict[yaml.Node, tuple[int, int]] = {}
        self._open = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if node not in self._extents:
                raise _Fault("an alias is inside the value that it refers to", mark)
            return node
        self._open += 1
        if self._open > MAX_DEPTH:
            raise _Fault(f"nested more than {MAX_DEPTH} deep", mark)
        node = super().compose_node(parent, index)
        self._open -= 1
        if node is not None:
            self._extents[node] = self._extent(node, mark)
        return node

    def _extent(self, node: yaml.Node, mark: yaml.Mark) -> tuple[int, int]:
        """Return the number of values in a node with every alias expanded, and their depth."""
        if node.tag not in _PLAIN_TAGS | {_MERGE}:
            raise _Fault(f"the tag {shown(node.tag.removeprefix(_TAG))} is not supported, write a plain value", mark)
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.ScalarNode):
            if not _is_whole_text(node.value):
                raise _Fault(f"{shown(node.value)} has half of a surrogate pair: write the whole character", mark)
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node)
            children = [child for entry in node.value for child in entry]
        extents = [self._extents[child] for child in children]
        values = 1 + sum(values for values, _ in extents)
        depth = 1 + max((depth for _, depth in extents), default=0)
        if values > MAX_VALUES:
            raise _Fault(f"more than {MAX_VALUES} values once its aliases are expanded, use fewer", mark)
        if depth > MAX_DEPTH:
            raise _Fault(f"nested more than {MAX_DEPTH} deep once its aliases are expanded", mark)
        return values, depth


_BoundedLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN_TAGS or tag == _MERGE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _scalar(
    read: Callable[[_BoundedLoader, yaml.ScalarNode], Any], kind: str
) -> Callable[[_BoundedLoader, yaml.Node], Any]:
    """Return a constructor that reads a scalar as ``read`` does, and refuses with its place what cannot be read.

    An explicit tag gives any text to ``read``. PyYAML's own constructors raise almost anything for it.
    """

    def construct(loader: _BoundedLoader, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            written = f"a {_KINDS[type(node)]}"
        else:
            written = shown(node.value)
            try:
                # Python would take digits of other scripts, which YAML does not.
                node.value.encode("ascii")
                return read(loader, node)
            except (ValueError, LookupError, OverflowError):
                pass
        raise _Fault(f"{written} cannot be read as {kind}: correct it, or put text in quotes", node.start_mark)

    return construct


def _boolean(loader: _BoundedLoader, node: yaml.ScalarNode) -> bool:
    if node.value.lower() not in {"true", "false"}:
        raise ValueError
    value: bool = loader.construct_yaml_bool(node)
    return value


def _finite_number(loader: _BoundedLoader, node: yaml.ScalarNode) -> float:
    if not {"_", ":"}.isdisjoint(node.value):
        raise ValueError
    number: float = loader.construct_yaml_float(node)
    if not isfinite(number):
        raise _Fault(f"{shown(node.value)} is not a finite number", node.start_mark)
    return number


def _whole_number(loader: _BoundedLoader, node: yaml.ScalarNode) -> int:
    if len(node.value) > MAX_DIGITS:
        raise _Fault(
            f"{shown(node.value)} has more than {MAX_DIGITS} digits: give a smaller number, or put text in quotes",
            node.start_mark,
        )
    if _DIGITS.fullmatch(node.value) is None:
        raise ValueError
    number: int = loader.construct_yaml_int(node)
    return number


def _refuse_merge(_: _BoundedLoader, node: yaml.Node) -> None:
    raise _Fault("'<<' merges a mapping into another, and is no value: put text in quotes", node.start_mark)


_BoundedLoader.add_constructor(f"{_TAG}bool", _scalar(_boolean, "true or false"))
_BoundedLoader.add_constructor(f"{_TAG}float", _scalar(_finite_number, "a number"))
_BoundedLoader.add_constructor(f"{_TAG}int", _scalar(_whole_number, "a whole number"))
_BoundedLoader.add_constructor(_MERGE, _refuse_merge)


def _is_whole_text(text: str) -> bool:
    """Return whether UTF-8 can encode the text. It cannot if an escape gives one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        scalar = isinstance(key, yaml.ScalarNode)
        if not scalar or key.tag not in (f"{_TAG}str", _MERGE):
            kind = f"the {key.tag.removeprefix(_TAG)} {shown(key.value)}" if scalar else f"a {_KINDS[type(key)]}"
            raise _Fault(f"a field's name must be text, not {kind}: put it in quotes", key.start_mark)
        if not key.value.isprintable():
            raise _Fault(f"the field {shown(key.value)} has unprintable characters in its name", key.start_mark)
        if key.value in seen:
            raise _Fault(f"the field {shown(key.value)} is given twice, leave one of them out", key.start_mark)
        seen.add(key.value)


def _unshared(value: Any) -> Any:
    """Return a copy of the tree in which aliases share no object, so that a change affects one place only."""
    if isinstance(value, dict):
        return {key: _unshared(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_unshared(entry) for entry in value]
    return value


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into a tree.

    Raise InputError for a text that is not YAML, exceeds the bounds, or has keys that repeat or are not text. The
    message is one line and gives the line number where it is known.
    """
    try:
        loader = _BoundedLoader(text)
        try:
            return _unshared(loader.get_single_data())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as fault:
        place = f"line {fault.problem_mark.line + 1}: " if fault.problem_mark else ""
        reported = fault.problem or fault.context or "unreadable"
        own = isinstance(fault, _Fault)
        raise InputError(f"{place}{reported if own else f'not YAML: {shortened(reported)}'}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        raise InputError(f"line {line}: a control character, which YAML does not allow: remove it") from None
    except (ValueError, OverflowError):
        line = loader.line + 1
        raise InputError(f"line {line}: not YAML: a number is too large, like that of a character after \\U") from None


def read_document(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raise InputError, one line that starts with the path; see ``parse_yaml``."""
    return parse_document(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text of a YAML file. Raise InputError, one line that starts with the path."""
    source = str(path)
    try:
        content = read_bounded(path, MAX_FILE_BYTES)
    except OSError as fault:
        raise InputError(
            f"{source}: cannot be read ({fault.strerror}): give the path of a readable YAML file"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{source}: larger than {MAX_FILE_BYTES // 2**20} MiB, too large for a file of this kind")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise InputError(f"{source}: line {line}: not UTF-8 text: save it as UTF-8") from None


def parse_document(text: str, source: str) -> dict[str, Any]:
    """Parse one YAML document that is a mapping. Raise InputError as ``parse_yaml`` does, with ``source`` in front."""
    with prefixed(f"{source}: "):
        document = parse_yaml(text)
        if not isinstance(document, dict):
            found = "empty" if document is None else f"a {'list' if isinstance(document, list) else 'single value'}"
            raise InputError(f"{found}, not a mapping: write fields like `name: value`")
        return document
