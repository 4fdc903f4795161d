"""Single-place changes of a module's source that alter its behaviour.

Only the bodies of functions change. Assertions, annotations, default values, log calls and the
constants of a module stay: most constants are sizes that work with any value.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import NamedTuple

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_CALCULATED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = {"logger", "log_window"}


class Edit(NamedTuple):
    """Bytes `start` to before `end` of a source become `text`."""

    start: int
    end: int
    text: str


class Mutant(NamedTuple):
    """`was` and `became` are the changed line without its indent."""

    path: str
    function: str
    was: str
    became: str
    nth: int
    """Index among equal places of the function, from 0."""
    line: int
    edit: Edit

    @property
    def name(self) -> str:
        """Stays when other lines of the module change."""
        return f"{self.path}\n{self.change}"

    @property
    def change(self) -> str:
        """The name without the module: it stays when the module moves."""
        return "\n".join((self.function, self.was, self.became, str(self.nth)))

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.edit.start] + self.edit.text.encode() + data[self.edit.end :]).decode()


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines. Raises `SyntaxError`."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    found = []
    alike = Counter[tuple[str, ...]]()
    for function, edit in sorted(finder.found, key=lambda edited: edited[1]):
        begin = finder.data.rfind(b"\n", 0, edit.start) + 1
        end = finder.data.find(b"\n", edit.start)
        stop = max(edit.end, finder.data.find(b"\n", edit.end)) if edit.end > end else end
        was = finder.data[begin:end].decode().strip()
        became = finder.data[begin : edit.start].decode() + edit.text
        became += finder.data[edit.end : stop].decode()
        line = finder.data.count(b"\n", 0, edit.start) + 1
        change = function, was, became.strip()
        found.append(Mutant(path, *change, alike[change], line, edit))
        alike[change] += 1
    return found


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self.found: list[tuple[str, Edit]] = []
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._depth = 0

    # Where nothing, or not everything, is changed

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._depth += 1
        self._inside(node.name, node.body)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as `NodeVisitor` calls it

    def _inside(self, name: str, body: list[ast.stmt]) -> None:
        self._names.append(name)
        for statement in body:
            self.visit(statement)
        self._names.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of `zip`: an assertion
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    # Changed

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call):
            self.generic_visit(node)
            return
        name = ast.unparse(value.func)
        if name.partition(".")[0] in _LOGS or name.startswith("super()"):
            return
        self._note(self._start(node), self._end(node), "pass")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for before, operator, after in zip(sides, node.ops, sides[1:], strict=False):
            self._swap(before, after, *_COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for before, after in zip(node.values, node.values[1:], strict=False):
            self._swap(before, after, *words)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _CALCULATED and not _is_text(node.left) and not _is_text(node.right):
            self._swap(node.left, node.right, *_CALCULATED[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in _CALCULATED and not _is_text(node.value):
            before, after = _CALCULATED[type(node.op)]
            self._swap(node.target, node.value, f"{before}=", f"{after}=")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._note(self._start(node), self._start(node) + len("not"), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._note(self._start(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            self._note(self._start(node), self._end(node), str(node.value + 1))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            self._note(self._start(node.test), self._start(node.test), "not ")
        self.generic_visit(node)

    visit_While = visit_If  # noqa: N815 - as `NodeVisitor` calls it
    visit_IfExp = visit_If  # noqa: N815 - as `NodeVisitor` calls it

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
            self._note(self._start(node.func), self._end(node.func), _CALLED[node.func.id])
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note(self._start(node), self._end(node), "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._note(self._start(node), self._end(node), "continue")

    # Positions, in bytes

    def _swap(self, before: ast.expr, after: ast.expr, old: str, new: str) -> None:
        """The operator between two operands, of which there is nothing else but brackets."""
        low, high = self._end(before), self._start(after)
        pattern = re.escape(old).replace(r"\ ", r"\s+").encode()
        if old[0].isalpha():
            pattern = rb"\b" + pattern + rb"\b"
        found = re.search(pattern, self.data[low:high])
        if found is not None:
            self._note(low + found.start(), low + found.end(), new)

    def _note(self, start: int, end: int, text: str) -> None:
        if self._depth:
            self.found.append((".".join(self._names), Edit(start, end, text)))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_text(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_constant or isinstance(node, ast.JoinedStr)
