"""Compiler of expressions: the CEL library with the functions of Kubernetes declared.

``cel-expr-python`` (Google's C++ implementation) parses and checks types. It is imported when the first expression is
compiled. Its messages have upstream's form. All libraries are declared, regardless of feature gates, as upstream does
for "stored expressions".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from .engine import library
from .syntax import Checked, Constant, Expr, MapExpr, children, read_checked, read_parsed
from .validators import problems

__all__ = ["LONGEST_EXPRESSION", "CompilationError", "Environment", "declared_overloads"]

#: Most characters of an expression (upstream: cel-go's parser).
LONGEST_EXPRESSION: Final = 100_000
#: Most characters to which ``optMap`` may expand an expression. It writes its target twice, so each link of a chain
#: doubles it.
_LARGEST_EXPANSION: Final = 200_000
_DOUBLING: Final = re.compile(r"\bopt(?:Flat)?Map\b")
#: Most maps with keys that are no constants. A map that is a key of another map doubles the name of its type.
_MOST_COMPUTED_KEYS: Final = 8


#: Most problems that are reported, each with its line, as by the library.
_MOST_PROBLEMS: Final = 20
#: Most characters of an error's text, which ends up in logs and conditions. Longer texts are cut.
_LONGEST_TEXT: Final = 1 << 14


class CompilationError(Exception):
    """The expression cannot be compiled. The text is upstream's."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…")


_ORDER: Final = ("int", "uint", "double")
_SAME: Final = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")

#: One line per overload: id, signature, result. The name of the function is in the signature.
_DECLARATIONS: Final = """
string_to_quantity quantity(string) kubernetes.Quantity
is_quantity_string isQuantity(string) bool
quantity_is_integer kubernetes.Quantity.isInteger() bool
quantity_get_int kubernetes.Quantity.asInteger() int
quantity_get_float kubernetes.Quantity.asApproximateFloat() double
quantity_sign sign(kubernetes.Quantity) int
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
#: Beginnings of the signatures of members.
_MEMBERS: Final = ("kubernetes.", "net.", "string.", "list<", "dyn.")
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
#: The library's own extension for strings is left out: with it, ``indexOf`` could not be declared for lists as well.
_EXTENSIONS: Final = ("bindings", "lists", "optional", "sets", "two-var-comprehensions")
#: A call without an overload: its place, function, first type (with its parameters), and other types.
_NO_OVERLOAD: Final = re.compile(
    r"^ERROR: <input>:(\d+):(\d+): found no matching overload for '([\w.]+)' applied to "
    r"'\(([\w.]+(?:\(.*?\)+)?)((?:, .*)?)\)'$",
    re.MULTILINE,
)
#: A type without values.
_NOTHING: Final = "kubernetes.Nothing"


def _overloads() -> Iterator[tuple[str, str, str, str]]:
    """Yield (function, id, signature, result) of all overloads."""
    yield from declared_overloads()
    for name, is_member in function_styles().items():
        # As upstream, a function is known in both call styles, as a member and not, so that a call in the wrong style
        # gets a message about types. With a dynamic argument, the check of styles refuses such a call.
        if "." not in name:
            signature = f"{name}({_NOTHING})" if is_member else f"{_NOTHING}.{name}()"
            yield name, f"{name.lower()}_otherwise", signature, "dyn"


@cache
def function_styles() -> dict[str, bool]:
    """Return the functions that are always called as members (True), or never (False)."""
    styles: dict[str, set[bool]] = {}
    for name, _, signature, _ in declared_overloads():
        styles.setdefault(name, set()).add(signature.startswith(_MEMBERS))
    return {name: True in known for name, known in styles.items() if len(known) == 1}


def declared_overloads() -> Iterator[tuple[str, str, str, str]]:
    """Yield (function, id, signature, result) of the overloads that upstream declares."""
    for line in _DECLARATIONS.strip().splitlines():
        overload, signature, result = line.split()
        head = signature[: signature.rindex("(")]
        member = head.startswith(_MEMBERS)
        # Dots in the name of a function that is no member have to be escaped.
        plain = signature if member else head.replace(".", "\\.") + signature[len(head) :]
        yield head.rpartition(".")[2] if member else head, overload, plain, result
    for kind in (*_SAME, "net.IP", "net.CIDR"):
        yield "string", f"{kind.replace('.', '_').lower()}_to_string", f"string({kind})", "string"
    for name in _FORMATS:
        yield f"format.{name}", f"format_{name}", f"format\\.{name}()", "kubernetes.NamedFormat"


def _comparison_overloads(function: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the overloads of an order operator. Overloads across number types are among them; the standard declarations
    lack these.
    """
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
    """Compiler for a set of variables, each with its type in the library's notation, such as ``map<string,dyn>``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        cel = library()
        self._env = cel.NewEnv(config=cel.NewEnvConfigFromYaml(_config(variables)))

    def compile(self, expression: str) -> Checked:
        """Parse and check an expression.

        Raises:
            CompilationError: with the place and the reason, as upstream.
        """
        self._check_size(expression)
        checked = read_checked(self._serialized(expression))
        found = problems(checked, function_styles())
        if found:
            raise self.error_at(expression, checked, found)
        return checked

    def _serialized(self, expression: str, *, unchecked: bool = False) -> bytes:
        try:
            serialized: bytes = self._env.compile(expression, unchecked).serialize()
        except RuntimeError as error:
            text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
            raise CompilationError(f"compilation failed: {_as_upstream(expression, text)}") from None
        return serialized

    def _check_size(self, expression: str) -> None:
        """Refuse an expression that would take the library much time or memory: the library cannot be interrupted."""
        size = len(expression)
        if size > LONGEST_EXPRESSION:
            raise CompilationError(
                "compilation failed: ERROR: <input>:-1:-1: expression code point size exceeds limit: "
                f"size: {size}, limit {LONGEST_EXPRESSION}"
            )
        if size << min(64, len(_DOUBLING.findall(expression))) > _LARGEST_EXPANSION:
            raise CompilationError(
                "compilation failed: too many optMap and optFlatMap for an expression of this length"
            )
        if "{" in expression:
            maps = _computed_keys(read_parsed(self._serialized(expression, unchecked=True)))
            if maps > _MOST_COMPUTED_KEYS:
                raise CompilationError(
                    f"compilation failed: {maps} maps have keys that are no constants, at most {_MOST_COMPUTED_KEYS} may"
                )

    def error_at(self, expression: str, checked: Checked, problems: Iterable[tuple[Expr, str]]) -> CompilationError:
        """Return an error about parts of an expression, in order, each with its line and a mark below it."""
        lines = expression.split("\n")
        texts = []
        places = sorted((checked.positions.get(part.id, 0), text) for part, text in problems)
        for offset, text in places[:_MOST_PROBLEMS]:
            before = expression[:offset]
            line, column = before.count("\n"), offset - (before.rfind("\n") + 1)
            mark = f" | {lines[line]}\n | {'.' * column}^"
            texts.append(f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n{mark}")
        return CompilationError(f"compilation failed: {chr(10).join(texts)}")


def _as_upstream(expression: str, text: str) -> str:
    """Return the library's message in upstream's words. Those differ for members and for an empty expression."""
    lines = expression.split("\n")

    def member(match: re.Match[str]) -> str:
        line, column, name, target, args = match.groups()
        before = "\n".join([*lines[: int(line) - 1], lines[int(line) - 1][: int(column) - 1]])
        if re.search(rf"\.\s*{re.escape(name)}\s*\Z", before) is None:
            return match[0]
        return match[0].replace(f"'({target}{args})'", f"'{target}.({args.removeprefix(', ')})'")

    return _NO_OVERLOAD.sub(member, text) if expression else text.replace("<input>:1:1:", "<input>:1:0:")


def _computed_keys(expr: Expr) -> int:
    """Return the number of maps in an expression that have a key that is no constant."""
    is_one = isinstance(expr, MapExpr) and any(not isinstance(entry.key, Constant) for entry in expr.entries)
    return is_one + sum(map(_computed_keys, children(expr)))
