"""Find the faults that can be planted in a module: each changes one place of its text, and nothing of its layout.

Left out is what no test should see: annotations, decorators, messages, assertions, what only a type checker runs,
whether ``zip`` is strict, examples and descriptions of fields. A fault may still change nothing that can be seen; a
person decides that.
"""

import ast
import io
import tokenize
from bisect import bisect_right
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitXor: "|",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
_FUNCTIONS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil": "floor",
    "floor": "ceil",
    "round": "int",
    "sorted": "list",
    "reversed": "list",
}
_NOT_SEEN = {"description", "examples", "strict"}
_KEYWORDS = {"default", "initial", "key", "reverse", "start"}
_LOGS = {"debug", "error", "exception", "info", "warning"}
_SMALL = 10


@dataclass(frozen=True)
class Fault:
    """A text in place of what stands between two offsets of a module's text. ``line`` is where it begins."""

    line: int
    begin: int
    end: int
    text: str

    def planted(self, source: str) -> str:
        """Return the module with the fault."""
        return source[: self.begin] + self.text + source[self.end :]


def faults_in(source: str) -> list[Fault]:
    """Return the faults that can be planted in a module, in the order of its text; some exclude each other."""
    found = _Faults(source)
    found.visit(ast.parse(source))
    return sorted(found.faults, key=lambda fault: (fault.begin, fault.end, fault.text))


class _Faults(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.faults: list[Fault] = []
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._line_begins = [0]
        for line in self._lines:
            self._line_begins.append(self._line_begins[-1] + len(line))
        self._tokens = [
            (self._line_begins[token.start[0] - 1] + token.start[1], token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type in {tokenize.OP, tokenize.NAME}
        ]
        self._function = ""
        self._in_index = False

    # What is left out.

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._store(node, node.target)
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self.visit(default)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in {"__repr__", "__str__"}:
            return
        outer, self._function = self._function, node.name
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)
        self._function = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in _NOT_SEEN:
            self.visit(node.value)

    # What is changed.

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if names & {"__all__", "__slots__"}:
            return
        if not self._function and isinstance(node.value, ast.Subscript):
            return  # A name for a type.
        for target in node.targets:
            self._store(node, target)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        text = self._text(node.test)
        if text in {"TYPE_CHECKING", "typing.TYPE_CHECKING"} or "__name__" in text:
            return
        self._replace(node.test, "True")
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._replace(node.test, "False")
            self.generic_visit(node)
            return
        for statement in node.body:
            self.visit(statement)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace(node.test, "True")
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace(condition, "True")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not _logs(node.value):
            self._replace(node, "pass")
            self.visit(node.value)
        elif not isinstance(node.value, ast.Call):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass")

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            self._replace_operator(left, right, _COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in (node.left, node.right))
        if type(node.op) in _OPERATORS and not texts:
            self._replace_operator(node.left, node.right, _OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_operator(left, right, other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        number = isinstance(node.operand, ast.Constant)
        if isinstance(node.op, ast.Not) or (isinstance(node.op, ast.USub) and not number):
            begin, _ = self._span(node)
            sign = 3 if isinstance(node.op, ast.Not) else 1
            self._add(begin, begin + sign, "")
        if not number or self._in_index:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        # A negative number is a position there; elsewhere it mostly stands for none, and any other would do.
        outer, self._in_index = self._in_index, True
        self.visit(node.slice)
        self._in_index = outer

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            near = (node.value - 1, node.value + 1) if node.value <= _SMALL else (node.value // 2, node.value * 2)
            for value in near:
                if value >= 0:
                    self._replace(node, str(value))
        elif isinstance(node.value, float):
            for other in (node.value * 0.75, node.value * 1.25) if node.value else (0.5,):
                self._replace(node, repr(other))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in _FUNCTIONS and (name != "sorted" or not node.keywords):
            _, end = self._span(node.func)
            self._add(end - len(name), end, _FUNCTIONS[name])
        if name == "range" and len(node.args) <= 2 and not isinstance(node.args[-1], ast.Starred):
            self._replace(node.args[-1], f"({self._text(node.args[-1])}) - 1")
        for keyword in node.keywords:
            if keyword.arg in _KEYWORDS:
                self._remove_keyword(node, keyword)
        for left, right in zip(node.args, node.args[1:], strict=False):
            both = isinstance(left, ast.Name | ast.Attribute) and isinstance(right, ast.Name | ast.Attribute)
            if both and self._text(left) != self._text(right) and name not in {"cast", "isinstance", "max", "min"}:
                (begin, left_end), (right_begin, end) = self._span(left), self._span(right)
                between = self._source[left_end:right_begin]
                self._add(begin, end, self._text(right) + between + self._text(left))
        self.generic_visit(node)

    def _store(self, node: ast.stmt, target: ast.expr) -> None:
        """Leave out a statement that changes an object; what an object or a name is first set to is needed."""
        if isinstance(target, ast.Attribute | ast.Subscript) and self._function not in {"", "__init__"}:
            self._replace(node, "pass")

    def _remove_keyword(self, node: ast.Call, keyword: ast.keyword) -> None:
        begin, end = self._span(keyword)
        before = self._source[:begin].rstrip()
        if before.endswith(",") and (node.args or node.keywords[0] is not keyword):
            self._add(len(before) - 1, end, "")

    def _replace_operator(self, left: ast.expr, right: ast.expr, text: str) -> None:
        """Replace the operator between two operands, parentheses of which may stand between them, too."""
        (_, begin), (end, _) = self._span(left), self._span(right)
        words = [(at, word) for at, word in self._tokens if begin <= at < end and word not in {"(", ")"}]
        self._add(words[0][0], words[-1][0] + len(words[-1][1]), text)

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        begin, end = self._span(node)
        if self._source[begin:end] != text:
            self._add(begin, end, text)

    def _add(self, begin: int, end: int, text: str) -> None:
        self.faults.append(Fault(bisect_right(self._line_begins, begin), begin, end, text))

    def _text(self, node: ast.expr) -> str:
        begin, end = self._span(node)
        return self._source[begin:end]

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column_bytes: int) -> int:
        """Return an offset in characters: columns of syntax trees count bytes."""
        return self._line_begins[line - 1] + len(self._lines[line - 1].encode()[:column_bytes].decode())


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _logs(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in _LOGS
