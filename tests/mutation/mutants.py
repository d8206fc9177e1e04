"""The mutants of a module: small faults, each made by one operator at one place.

``runner.py`` draws some of them and runs tests against each. The operators are mutmut's, and two more: a statement that is not
carried out, and a condition turned round. Annotations, decorators, docstrings, what is logged and what cannot happen stay as they
are: no test should fix those, or a type checker does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from types import CodeType
from typing import Any, Final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

UNTOUCHED: Final = (
    m.Annotation()
    | m.Decorator()
    | m.Import()
    | m.ImportFrom()
    | m.Expr(value=m.SimpleString() | m.ConcatenatedString())
    | m.Assign(targets=[m.AssignTarget(target=m.Name("__slots__") | m.Name("__all__"))])
    | m.Call(func=m.Attribute(value=m.Name("_log")) | m.Name("cast") | m.Name("TypeVar") | m.Name("isinstance"))
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.SimpleStatementLine(body=[m.Raise(exc=m.Call(func=m.Name("AssertionError")))])
)


@dataclass(frozen=True)
class Mutant:
    #: Relative to the root of the project.
    path: Path
    module: cst.Module
    before: cst.CSTNode
    after: cst.CSTNode
    #: The lines of the statement that is changed, by number.
    lines: range

    @property
    def package(self) -> str:
        return self.path.parent.name

    def source(self) -> str:
        changed = self.module.deep_replace(self.before, self.after)
        assert isinstance(changed, cst.Module)
        return changed.code

    def diff(self) -> str:
        old, new = self.module.code.splitlines(), self.source().splitlines()
        return "\n".join(unified_diff(old, new, str(self.path), str(self.path), n=2, lineterm=""))

    def works(self) -> bool:
        """Return True if the module can be compiled, and into something else than before."""
        try:
            return _compiled(self.source()) != _compiled(self.module.code)
        except SyntaxError:
            return False


def _compiled(source: str | CodeType) -> tuple[object, ...]:
    """Return the bytecode, names and constants of a module or function, without line numbers."""
    code = source if isinstance(source, CodeType) else compile(source, "module", "exec", dont_inherit=True)
    constants = tuple(_compiled(c) if isinstance(c, CodeType) else (type(c), c) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, constants


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text("utf-8")))
    visitor = _Places(path.relative_to(root), wrapper.module)
    wrapper.visit(visitor)
    return visitor.mutants


def _not_carried_out(line: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    if m.matches(line, m.SimpleStatementLine(body=[m.Expr(value=m.Call() | m.Await()) | m.Raise() | m.Return()])):
        yield line.with_changes(body=[cst.Pass()])


def _turned_round(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    if m.matches(node.test, m.Name() | m.Attribute() | m.Call() | m.NamedExpr() | m.BooleanOperation()):
        inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        test = cst.UnaryOperation(cst.Not(whitespace_after=cst.SimpleWhitespace(" ")), inner)
        yield node.with_changes(test=test)


def _other_text(node: cst.BaseString) -> Iterator[cst.CSTNode]:
    # The first is enough: the others differ in upper and lower case only.
    yield from list(mutators.operator_string(node))[:1]


_INSTEAD: Final[dict[Any, Callable[[Any], Any]]] = {mutators.operator_string: _other_text}
OPERATORS: Final[list[tuple[type, Callable[[Any], Any]]]] = [
    *((kind, _INSTEAD.get(operator, operator)) for kind, operator in mutators.mutation_operators),
    (cst.SimpleStatementLine, _not_carried_out),
    (cst.If, _turned_round),
    (cst.While, _turned_round),
]


class _Places(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: Path, module: cst.Module) -> None:
        super().__init__()
        self._path = path
        self._module = module
        #: Where the statements begin that contain the node, the innermost last.
        self._statements: list[int] = []
        self.mutants: list[Mutant] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if m.matches(node, UNTOUCHED):
            return False
        position = self.get_metadata(PositionProvider, node, None)
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement) and position is not None:
            self._statements.append(position.start.line)
        if position is not None and self._statements:
            # A block's condition is on its first line, and its body has tests of its own.
            end = position.start.line if isinstance(node, cst.BaseCompoundStatement) else position.end.line
            lines = range(self._statements[-1], end + 1)
            for kind, operator in OPERATORS:
                if isinstance(node, kind):
                    self.mutants.extend(Mutant(self._path, self._module, node, to, lines) for to in operator(node))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        statement = isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        if statement and not m.matches(original_node, UNTOUCHED):
            self._statements.pop()
