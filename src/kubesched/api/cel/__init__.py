"""CEL, the expression language of Kubernetes.

``cel-expr-python`` (Google's C++ implementation) parses and checks. :mod:`.program` evaluates the checked tree in
Python, with the functions and types of Kubernetes, upstream's messages, and the cost counted against its limit.
"""

from __future__ import annotations

from .engine import MissingLibraryError
from .environment import CompilationError, Environment
from .meter import COST_LIMIT, EvaluationCancelledError, EvaluationInterruptedError, Meter
from .program import Program
from .regex import states as pattern_states
from .syntax import Call, Checked, Constant, Expr, Ident, Select, children
from .values import DefaultMap, EvaluationError, Semver, kind_of, parse_semver

__all__ = [
    "COST_LIMIT",
    "Call",
    "Checked",
    "CompilationError",
    "Constant",
    "DefaultMap",
    "Environment",
    "EvaluationCancelledError",
    "EvaluationError",
    "EvaluationInterruptedError",
    "Expr",
    "Ident",
    "Meter",
    "MissingLibraryError",
    "Program",
    "Select",
    "Semver",
    "children",
    "kind_of",
    "parse_semver",
    "pattern_states",
]
