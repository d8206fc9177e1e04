"""Compiling expressions: the CEL library with the functions of Kubernetes declared.

Parsing and type checking are done by ``cel-expr-python`` (Google's C++ implementation), imported when the first
expression is compiled. Its messages have upstream's form. The declarations here are those of "stored expressions":
all libraries, whatever the gates.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from .syntax import Call, Checked, Comprehension, Expr, ListExpr, MapExpr, Select, read_checked

__all__ = ["CompilationError", "Environment", "MissingLibraryError", "children", "library"]


class CompilationError(Exception):
    """An expression that cannot be compiled; the text is upstream's."""


class MissingLibraryError(Exception):
    """The CEL library cannot be imported on this platform."""


@cache
def library() -> Any:
    """The module of the CEL library.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        # The library imports protobuf's messages with its first environment, and aborts the process if a signal's handler
        # raises meanwhile.
        importlib.import_module("google.protobuf.message_factory")
        return importlib.import_module("cel_expr_python.cel")
    except ImportError as error:
        raise MissingLibraryError(
            f"CEL expressions need the package cel-expr-python, which cannot be imported here: {error}; "
            "install it with: pip install cel-expr-python"
        ) from None


_ORDER: Final = ("int", "uint", "double")
_SAME: Final = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")

#: One line per overload: id, signature, result. The name of the function is in the signature.
_DECLARATIONS: Final = """
string_to_quantity quantity(string) kubernetes.Quantity
is_quantity_string isQuantity(string) bool
quantity_is_integer kubernetes.Quantity.isInteger() bool
quantity_get_int kubernetes.Quantity.asInteger() int
quantity_get_float kubernetes.Quantity.asApproximateFloat() double
quantity_sign kubernetes.Quantity.sign() int
quantity_add kubernetes.Quantity.add(kubernetes.Quantity) kubernetes.Quantity
quantity_add_int kubernetes.Quantity.add(int) kubernetes.Quantity
quantity_sub kubernetes.Quantity.sub(kubernetes.Quantity) kubernetes.Quantity
quantity_sub_int kubernetes.Quantity.sub(int) kubernetes.Quantity
quantity_greater_than kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) bool
quantity_less_than kubernetes.Quantity.isLessThan(kubernetes.Quantity) bool
quantity_compare_to kubernetes.Quantity.compareTo(kubernetes.Quantity) int
semver_is_greater_than kubernetes.Semver.isGreaterThan(kubernetes.Semver) bool
semver_is_less_than kubernetes.Semver.isLessThan(kubernetes.Semver) bool
semver_compare_to kubernetes.Semver.compareTo(kubernetes.Semver) int
string_to_semver semver(string) kubernetes.Semver
string_bool_to_semver semver(string,bool) kubernetes.Semver
is_semver_string isSemver(string) bool
is_semver_string_bool isSemver(string,bool) bool
semver_major kubernetes.Semver.major() int
semver_minor kubernetes.Semver.minor() int
semver_patch kubernetes.Semver.patch() int
string_char_at_int string.charAt(int) string
string_index_of_string string.indexOf(string) int
string_index_of_string_int string.indexOf(string,int) int
string_last_index_of_string string.lastIndexOf(string) int
string_last_index_of_string_int string.lastIndexOf(string,int) int
string_lower_ascii string.lowerAscii() string
string_upper_ascii string.upperAscii() string
string_replace_string_string string.replace(string,string) string
string_replace_string_string_int string.replace(string,string,int) string
string_split_string string.split(string) list<string>
string_split_string_int string.split(string,int) list<string>
string_substring_int string.substring(int) string
string_substring_int_int string.substring(int,int) string
string_trim string.trim() string
string_format string.format(list<dyn>) string
strings_quote strings.quote(string) string
list_join list<string>.join() string
list_join_string list<string>.join(string) string
string_find_string string.find(string) string
string_find_all_string string.findAll(string) list<string>
string_find_all_string_int string.findAll(string,int) list<string>
list_is_sorted list<~T>.isSorted() bool
list_sum list<~T>.sum() ~T
list_max list<~T>.max() ~T
list_min list<~T>.min() ~T
list_index_of list<~T>.indexOf(~T) int
list_last_index_of list<~T>.lastIndexOf(~T) int
string_to_ip ip(string) net.IP
is_ip isIP(string) bool
ip_is_canonical ip.isCanonical(string) bool
ip_family net.IP.family() int
ip_is_unspecified net.IP.isUnspecified() bool
ip_is_loopback net.IP.isLoopback() bool
ip_is_link_local_multicast net.IP.isLinkLocalMulticast() bool
ip_is_link_local_unicast net.IP.isLinkLocalUnicast() bool
ip_is_global_unicast net.IP.isGlobalUnicast() bool
string_to_cidr cidr(string) net.CIDR
is_cidr isCIDR(string) bool
cidr_contains_ip_string net.CIDR.containsIP(string) bool
cidr_contains_ip_ip net.CIDR.containsIP(net.IP) bool
cidr_contains_cidr_string net.CIDR.containsCIDR(string) bool
cidr_contains_cidr net.CIDR.containsCIDR(net.CIDR) bool
cidr_ip net.CIDR.ip() net.IP
cidr_masked net.CIDR.masked() net.CIDR
cidr_prefix_length net.CIDR.prefixLength() int
string_to_url url(string) kubernetes.URL
is_url isURL(string) bool
url_get_scheme kubernetes.URL.getScheme() string
url_get_host kubernetes.URL.getHost() string
url_get_hostname kubernetes.URL.getHostname() string
url_get_port kubernetes.URL.getPort() string
url_get_escaped_path kubernetes.URL.getEscapedPath() string
url_get_query kubernetes.URL.getQuery() map<string,list<string>>
format_validate kubernetes.NamedFormat.validate(string) optional_type<list<string>>
format_named format.named(string) optional_type<kubernetes.NamedFormat>
includes_value dyn.includes(dyn) bool
"""
_FORMATS: Final = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
]
#: The library's own extension for strings would not let ``indexOf`` be declared for lists too.
_EXTENSIONS: Final = ("bindings", "lists", "optional", "sets", "two-var-comprehensions")
_WHERE: Final = re.compile(r" \(in container ''\)$", re.MULTILINE)
_NAME: Final = re.compile(r"([A-Za-z_.0-9]+)\(")


def _overloads() -> Iterator[tuple[str, str, str, str]]:
    """Function, id, signature, result."""
    for line in _DECLARATIONS.strip().splitlines():
        overload, signature, result = line.split()
        head = signature[: signature.rindex("(")]
        member = head.startswith(("kubernetes.", "net.", "string.", "list<", "dyn."))
        # Dots in the name of a function that is no member are escaped.
        plain = signature if member else head.replace(".", "\\.") + signature[len(head) :]
        yield head.rpartition(".")[2] if member else head, overload, plain, result
    for kind in (*_SAME, "net.IP", "net.CIDR"):
        yield "string", f"{kind.replace('.', '_').lower()}_to_string", f"string({kind})", "string"
    for name in _FORMATS:
        yield f"format.{name}", f"format_{name}", f"format\\.{name}()", "kubernetes.NamedFormat"


def _comparison_overloads(function: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """An order operator with comparisons across the types of numbers, which the standard declarations lack."""
    ids = {"int": "int64", "uint": "uint64"}
    operator = function.strip("_").replace("<", "\\<").replace(">", "\\>")
    for left in _SAME:
        for right in _ORDER if left in _ORDER else (left,):
            suffix = ids.get(left, left) if left == right else f"{ids.get(left, left)}_{ids.get(right, right)}"
            yield function, f"{name}_{suffix}", f"_{operator}_({left},{right})", "bool"


_COMPARISONS: Final = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}


def _config(variables: Mapping[str, str]) -> str:
    lines = ["name: kubernetes", "stdlib:", "  exclude_functions:"]
    lines += [f'  - name: "{function}"' for function in (*_COMPARISONS, "string")]
    lines.append("extensions:")
    lines += [f"- name: {extension}" for extension in _EXTENSIONS]
    lines.append("variables:")
    for name, kind in variables.items():
        lines += [f"- name: {name}", f'  type: "{kind}"']
    functions: dict[str, list[tuple[str, str, str]]] = {}
    every = [*_overloads(), *(row for item in _COMPARISONS.items() for row in _comparison_overloads(*item))]
    for function, *rest in every:
        functions.setdefault(function, []).append((rest[0], rest[1], rest[2]))
    lines.append("functions:")
    for function, overloads in functions.items():
        lines += [f'- name: "{function}"', "  overloads:"]
        for overload, signature, result in overloads:
            escaped = signature.replace("\\", "\\\\")
            lines += [f"  - id: {overload}", f'    signature: "{escaped}"', f'    return: "{result}"']
    return "\n".join(lines)


class Environment:
    """A set of variables, each with its type in the library's notation, such as ``map<string,dyn>``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        cel = library()
        self._env = cel.NewEnv(config=cel.NewEnvConfigFromYaml(_config(variables)))

    def compile(self, expression: str) -> Checked:
        """Parse and check an expression.

        Raises:
            CompilationError: with the place and the reason, as upstream.
        """
        try:
            checked = read_checked(self._env.compile(expression).serialize())
        except RuntimeError as error:
            text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
            raise CompilationError(f"compilation failed: {text}") from None
        problem = _mixed_literal(checked.expr, checked.types)
        if problem is not None:
            expr, text = problem
            raise self.error_at(expression, checked, expr, text)
        return checked

    def error_at(self, expression: str, checked: Checked, expr: Expr, text: str) -> CompilationError:
        """An error about a part of an expression, with the line and a mark below it."""
        offset = checked.positions.get(expr.id, 0)
        before = expression[:offset]
        line, column = before.count("\n"), offset - (before.rfind("\n") + 1)
        source = expression.split("\n")[line]
        mark = f" | {source}\n | {'.' * column}^"
        return CompilationError(f"compilation failed: ERROR: <input>:{line + 1}:{column + 1}: {text}\n{mark}")


def children(expr: Expr) -> tuple[Expr, ...]:
    """The parts that an expression is directly made of."""
    match expr:
        case Select():
            return (expr.operand,)
        case Call():
            return expr.args
        case ListExpr():
            return expr.elements
        case MapExpr():
            return tuple(part for entry in expr.entries for part in (entry.key, entry.value))
        case Comprehension():
            return (expr.iter_range, expr.accu_init, expr.condition, expr.step, expr.result)
    return ()


def _mixed_literal(expr: Expr, types: Mapping[int, str]) -> tuple[Expr, str] | None:
    """Lists and maps have to be written with elements of one type (upstream: homogeneous aggregate literals)."""
    groups: list[tuple[Expr, ...]] = []
    if isinstance(expr, ListExpr):
        groups = [expr.elements]
    elif isinstance(expr, MapExpr):
        groups = [tuple(entry.key for entry in expr.entries), tuple(entry.value for entry in expr.entries)]
    for group in groups:
        first = next((types[part.id] for part in group if types.get(part.id, "dyn") not in _OPEN), None)
        for part in group:
            found = types.get(part.id, "dyn")
            if first is not None and found not in _OPEN and found != first:
                return part, f"expected type '{first}' but found '{found}'"
    for part in children(expr):
        problem = _mixed_literal(part, types)
        if problem is not None:
            return problem
    return None


_OPEN: Final = ("dyn", "any", "error", "null_type")
