"""Reference pages of classes and functions: signatures as they are in the source, and docstrings as Markdown.

Caller: :mod:`.reference`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from kubesched import (
    ApiError,
    Comparison,
    ConfigError,
    ManifestError,
    PluginError,
    Simulation,
    SimulationResult,
    SweepError,
    TaskCrashedError,
    TraceError,
    arrivals,
    capacity,
    decisions,
    diff,
    plan,
    simulate,
    sweep,
)
from kubesched.explain.records import Record
from kubesched.lab.comparisons.report import ComparisonReport, Figure, PodDifference
from kubesched.lab.decisions.table import Decisions
from kubesched.lab.simulate.inputs.trace_files import ArrivalTable
from kubesched.lab.simulate.planning.entry import CapacityResult, PlanResult
from kubesched.lab.simulate.results.result import Result
from kubesched.lab.sweeps import SweepTable
from kubesched.scheduler.framework import (
    Code,
    Contract,
    GroupContract,
    Handle,
    Normalize,
    Plugin,
    Question,
    Reads,
    Status,
)
from kubesched.testing import PluginCluster, node, pod

__all__ = ["contract_page", "markdown_of", "python_page"]

_ROLE: Final = re.compile(r":(?:class|meth|func|mod|data|attr):`~?\.*(?:[\w.]*\.)?(\w+)`")
#: ``name: meaning`` and ``KindOfError, AnotherError: when``, in a section of a docstring.
_ITEM: Final = re.compile(r"(\w[\w., ]*): (.*)")


def contract_page(made: str) -> str:
    """Page of the plugin contract: every method that a plugin may define or call."""
    intro = (
        "A plugin is a class with a `name` and some of these methods. `Contract` lists the methods of a plugin, `Question` "
        "those of a fast plugin's questions, `Handle` is what a plugin can reach. [Writing a plugin](plugins.md) is the guide."
    )
    kinds = (Contract, GroupContract, Question, Plugin, Handle, Status, Code, Reads, Normalize)
    return "\n\n".join(["# Plugin contract", intro, made, *map(_class, kinds)]) + "\n"


def python_page(made: str) -> str:
    """Page of the names that programs import: simulations, sweeps, plans, decisions, and tests of plugins."""
    intro = (
        "`kubesched` has simulations, sweeps, plans and recorded decisions, `kubesched.testing` has tests of plugins. The guides are "
        "[simulations in Python](python.md), [sweeps](sweeps.md), [capacity](capacity.md), [plans](plan.md), [decisions](decisions.md) and [writing a plugin](plugins.md). `Plugin` and `Status` are on "
        "[a page of their own](plugin-contract.md)."
    )
    parts = [
        *(_function(simulate), _class(Simulation), _class(SimulationResult), _class(Result)),
        *(_function(arrivals), _class(ArrivalTable)),
        *(_function(diff), _class(Comparison), _class(ComparisonReport), _class(PodDifference), _class(Figure)),
        *(_function(sweep), _class(SweepTable)),
        *(_function(capacity), _class(CapacityResult), _function(plan), _class(PlanResult)),
        *(_function(decisions), _class(Decisions), _class(Record)),
        *(_class(PluginCluster), _function(node), _function(pod)),
        *map(_error, (ManifestError, ConfigError, PluginError, SweepError, TraceError, ApiError, TaskCrashedError)),
    ]
    return "\n\n".join(["# Python reference", intro, made, *parts]) + "\n"


def _error(kind: type[Exception]) -> str:
    """Heading and docstring of an exception."""
    return f"## `{kind.__name__}`\n\n{markdown_of(kind)}"


def _function(function: Callable[..., Any], owner: str = "") -> str:
    """Heading, signature and docstring of a function, or of a method of a class."""
    name = function.__name__
    heading = f"### `{owner}.{name}`" if owner else f"## `{name}`"
    parts = [heading, _code(_signature(_source(function))), markdown_of(function)]
    return "\n\n".join(part for part in parts if part)


def _class(kind: type) -> str:
    """Heading, docstring, attributes and methods of a class, in the order of the source."""
    tree = ast.parse(_source(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    methods = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    parts = [f"## `{kind.__name__}`", markdown_of(kind), _attributes(_source(kind), tree.body[0].end_lineno or 0)]
    for each in methods:
        found = vars(kind)[each.name]
        function = getattr(found, "fget", None) or getattr(found, "__func__", found)  # a property or a class method
        if each.name == "__init__":
            parts += [_code(_signature(_source(function))), markdown_of(function)]
        elif not each.name.startswith("_"):
            parts.append(_function(function, kind.__name__))
    return "\n\n".join(part for part in parts if part)


def _attributes(source: str, begin: int) -> str:
    """Attributes of a class with their comments: the lines from the end of its docstring to its first method."""
    after = takewhile(lambda line: not re.match(r" +(?:@|(?:async )?def )", line), source.splitlines()[begin:])
    kept = [line for line in after if not re.match(r"\s*(?:__slots__|# --)", line)]
    return _code(textwrap.dedent("\n".join(kept)).strip())


def _source(object_: Any) -> str:
    return textwrap.dedent(inspect.getsource(object_))


def _signature(source: str) -> str:
    """The lines of a function before its body, decorators included."""
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    first = tree.body[0]
    lines = source.splitlines()[: first.lineno]
    lines[-1] = lines[-1][: first.col_offset]
    return re.sub(r":\s*(?:#.*)?$", "", "\n".join(lines).rstrip())


def _code(text: str) -> str:
    return f"```py\n{text}\n```" if text else ""


def markdown_of(object_: Any) -> str:
    """Markdown of an object's own docstring: code and roles in backticks, sections such as ``Args:`` as lists."""
    text = inspect.cleandoc(object_.__doc__ or "")
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    return "\n\n".join(_block(lines) for lines in _blocks(text.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the paragraphs of a docstring. A section and its items are one paragraph."""
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _block(lines: Sequence[str]) -> str:
    if all(line.startswith("    ") for line in lines):
        return _code(textwrap.dedent("\n".join(lines)))
    # A docstring that begins with a section has lost the indentation of its items.
    if not lines[0].endswith(":") or len(lines) == 1 or not (lines[1].startswith("    ") or _ITEM.match(lines[1])):
        return "\n".join(lines)
    items: list[str] = []
    for line in lines[1:]:
        if (match := _ITEM.match(line.removeprefix("    "))) is not None:
            names = ", ".join(f"`{name}`" for name in match[1].split(", "))
            items.append(f"* {names}: {match[2]}")
        else:
            items.append(f"  {line.strip()}")
    return "\n".join([lines[0], "", *items])
