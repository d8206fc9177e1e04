"""Label selectors and node selectors, compiled once and evaluated often.

Semantics: requirement operators and their parse-time rules, nil against empty selectors, and the lazy error rule of
node selectors (rules/node-plugins §2; upstream ``apimachinery/pkg/labels`` and
``component-helpers/scheduling/corev1/nodeaffinity``).

A compiled selector evaluates one label map (``matches``). The node table evaluates the same :class:`Requirement`
objects over whole columns.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.base.kept import remembered

from .quantity import INT64_MAX
from .types import (
    LabelSelector,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
)

__all__ = [
    "MOST_REQUIREMENTS",
    "NodeSelectorMatcher",
    "Operator",
    "PreferredTerms",
    "RequiredNodeAffinity",
    "Requirement",
    "Selector",
    "SelectorError",
    "TermMatcher",
    "compile_label_selector",
    "is_label_value",
    "is_object_name",
    "is_qualified_name",
    "label_selector_problem",
    "parse_int64",
    "parse_selector_text",
    "preferred_terms",
    "required_node_affinity",
    "selector_from_map",
]


class SelectorError(ValueError):
    """The selector cannot be compiled. The message starts with the path of the offending field."""


class Operator(enum.StrEnum):
    """Operators that compare a label, spelled as in node selectors."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_OPERATORS: Final = {operator.value: operator for operator in Operator}
_NAME_PART: Final = re.compile(r"^[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", re.ASCII)
_NAME_PART_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_DNS_SUBDOMAIN: Final = re.compile(
    r"^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII
)
_INT64_DIGITS: Final = 19
_INTEGER: Final = re.compile(r"^[+-]?[0-9]+\Z", re.ASCII)


@remembered(4 << 20)
def is_qualified_name(key: str) -> bool:
    """True if ``key`` is a label key: an optional DNS prefix and a name of at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (prefix and len(prefix) <= 253 and _DNS_SUBDOMAIN.match(prefix)):
        return False
    return len(name) <= 63 and _NAME_PART.match(name) is not None


def is_object_name(name: str) -> bool:
    """True if ``name`` is a DNS subdomain of at most 253 characters, as most kinds of objects demand."""
    return len(name) <= 253 and _DNS_SUBDOMAIN.match(name) is not None


def is_label_value(value: str) -> bool:
    """True if ``value`` may be a label's value: empty, or at most 63 characters with alphanumeric ends."""
    return not value or (len(value) <= 63 and _NAME_PART.match(value) is not None)


def parse_int64(text: str) -> int | None:
    """Read a base-10 int64, or return None. Leading zeros are fine; spaces, underscores and overflow are not."""
    if not _INTEGER.match(text):
        return None
    if len(text.lstrip("+-0")) > _INT64_DIGITS:
        return None  # Python refuses to read very long numbers
    number = int(text.lstrip("+-0") or "0")
    number = -number if text.startswith("-") else number
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label key.

    ``values`` are the operands of In and NotIn; ``number`` is the operand of Gt and Lt.
    """

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        if value is None:
            return False
        number = parse_int64(value)
        if number is None:
            return False
        return number > self.number if self.operator is Operator.GT else number < self.number


def _requirement(key: str, operator: str, values: Sequence[str], path: str, *, node: bool) -> Requirement:
    """Compile one requirement, with the checks of upstream's parser.

    Raises:
        SelectorError: with the field path, the value and what would be right.
    """
    if not is_qualified_name(key):
        raise SelectorError(
            f'{path}.key: Invalid value: "{key}": must be a qualified label name such as example.com/name'
        )
    op = _OPERATORS.get(operator)
    if op is None or (not node and op in (Operator.GT, Operator.LT)):
        allowed = "In, NotIn, Exists, DoesNotExist" + (", Gt, Lt" if node else "")
        raise SelectorError(
            f'{path}.operator: Invalid value: "{operator}": not a valid selector operator, use one of {allowed}'
        )
    number = 0
    match op:
        case Operator.IN | Operator.NOT_IN:
            if not values:
                raise SelectorError(
                    f"{path}.values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                )
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            if values:
                raise SelectorError(
                    f"{path}.values: Invalid value: {list(values)}: values set must be empty for exists and does not exist"
                )
        case Operator.GT | Operator.LT:
            if len(values) != 1:
                raise SelectorError(
                    f"{path}.values: Invalid value: {list(values)}: for 'Gt', 'Lt' operators, exactly one value is required"
                )
            parsed = parse_int64(values[0])
            if parsed is None:
                raise SelectorError(
                    f"{path}.values[0]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            number = parsed
    for index, value in enumerate(values):
        if not is_label_value(value):
            raise SelectorError(
                f'{path}.values[{index}]: Invalid value: "{value}": a label value is empty or at most 63 characters, '
                "letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            )
    return Requirement(key, op, frozenset(values), number)


@dataclass(frozen=True, slots=True)
class Selector:
    """Label selector: ANDed requirements. An absent selector compiles to one with ``matches_nothing``."""

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False

    @property
    def is_empty(self) -> bool:
        """True if the selector has no requirement and so selects everything. False for an absent selector."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.matches_nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110 - a plain loop is twice as fast as all()
            if not requirement.matches(labels):
                return False
        return True


#: Meaning of an absent (nil) label selector.
NOTHING: Final = Selector(matches_nothing=True)
#: Meaning of an empty label selector.
EVERYTHING: Final = Selector()


def compile_label_selector(selector: LabelSelector | None, path: str = "labelSelector") -> Selector:
    """Compile a ``LabelSelector``: absent matches nothing, empty matches everything.

    Raises:
        SelectorError: if a requirement is invalid.
    """
    if selector is None:
        return NOTHING
    requirements = [
        _requirement(key, Operator.IN, (value,), f"{path}.matchLabels[{key}]", node=False)
        for key, value in sorted(selector.match_labels.items())
    ]
    requirements += [
        _requirement(item.key, item.operator, item.values, f"{path}.matchExpressions[{index}]", node=False)
        for index, item in enumerate(selector.match_expressions)
    ]
    return Selector(tuple(requirements)) if requirements else EVERYTHING


def label_selector_problem(selector: LabelSelector | None) -> str:
    """Return the reason why a label selector cannot be used, in upstream's words for a pod's condition, or ""."""
    if selector is None:
        return ""
    try:
        compile_label_selector(selector)
    except SelectorError as error:
        problem = str(error)
    else:
        return ""
    for item in selector.match_expressions:
        name = item.key.rpartition("/")[2]
        if name and len(name) <= 63 and not _NAME_PART.match(name):
            return f'key: Invalid value: "{item.key}": {_NAME_PART_RULE}'
        if item.operator not in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST):
            return f'"{item.operator}" is not a valid label selector operator'
        if item.operator in (Operator.IN, Operator.NOT_IN):
            if not item.values:
                return "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        elif item.values:
            shown = ",".join(f'"{value}"' for value in item.values)
            return f"values: Invalid value: [{shown}]: values set must be empty for exists and does not exist"
    return problem


def selector_from_map(labels: Mapping[str, str] | None) -> Selector:
    """Compile a plain map selector (``nodeSelector``, a Service's selector): absent and empty match everything.

    As upstream, the pairs are not validated.
    """
    if not labels:
        return EVERYTHING
    return Selector(tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in sorted(labels.items())))


#: Most requirements of a selector in text. It is compared with every object of a list and every change of a watch.
MOST_REQUIREMENTS: Final = 500
#: Repetitions are possessive, so that no text is read twice: a long run of blanks would take quadratic time otherwise.
_TEXT_TERM: Final = re.compile(
    r"\s*+(?:(?P<neg>!)\s*+(?P<absent>[^\s,=!()<>]++)"
    r"|(?P<key>[^\s,=!()<>]++)(?:\s++(?P<set>in|notin)\s*+\((?P<values>[^()]*+)\)"
    r"|\s*+(?P<op>==|=|!=|>|<)\s*+(?P<value>[^\s,=!()<>]*+))?)\s*+(?:,|$)"
)


def parse_selector_text(text: str) -> Selector:
    """Compile the string form used by list requests and command lines: ``a=b,c!=d,e in (x,y),!f,g,h>3``.

    Raises:
        SelectorError: if it cannot be read; the message names the text.
    """
    position = 0
    requirements: list[Requirement] = []
    while position < len(text):
        match = _TEXT_TERM.match(text, position)
        if match is None or match.end() == position:
            raise SelectorError(
                f"unable to parse requirement {text[position:]!r} in selector {text!r}; "
                "write key, !key, key=value, key!=value, key in (a,b) or key notin (a,b), separated by commas"
            )
        position = match.end()
        if position == len(text) and text.endswith(","):
            raise SelectorError(f"the selector {text!r} ends with a comma; another requirement is expected after it")
        if len(requirements) == MOST_REQUIREMENTS:
            raise SelectorError(f"more than {MOST_REQUIREMENTS} requirements; write key in (a,b) for those of one key")
        if match["absent"]:
            requirement = _requirement(match["absent"], Operator.DOES_NOT_EXIST, (), "selector", node=True)
        elif match["set"]:
            values = tuple(value.strip() for value in match["values"].split(","))
            operator = Operator.IN if match["set"] == "in" else Operator.NOT_IN
            requirement = _requirement(match["key"], operator, values, "selector", node=True)
        elif match["op"]:
            operator = {"!=": Operator.NOT_IN, ">": Operator.GT, "<": Operator.LT}.get(match["op"], Operator.IN)
            requirement = _requirement(match["key"], operator, (match["value"],), "selector", node=True)
        else:
            requirement = _requirement(match["key"], Operator.EXISTS, (), "selector", node=True)
        requirements.append(requirement)
    return Selector(tuple(requirements)) if requirements else EVERYTHING


# -- node selectors ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TermMatcher:
    """One readable node selector term: requirements on labels and on ``metadata.name``, all ANDed."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not all(requirement.matches(labels) for requirement in self.labels):
            return False
        return not name or all(
            # An unknown field reads as the empty string, which is present and equals no other value.
            requirement.matches({requirement.key: name if requirement.key == "metadata.name" else ""})
            for requirement in self.fields
        )


def _compile_term(term: NodeSelectorTerm, path: str) -> TermMatcher | None:
    """Compile a term. None for a term without any requirement, which matches no node.

    Raises:
        SelectorError: if the term cannot be parsed.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    labels = tuple(
        _requirement(item.key, item.operator, item.values, f"{path}.matchExpressions[{index}]", node=True)
        for index, item in enumerate(term.match_expressions)
    )
    fields = tuple(_compile_field(item, f"{path}.matchFields[{index}]") for index, item in enumerate(term.match_fields))
    return TermMatcher(labels, fields)


def _compile_field(item: NodeSelectorRequirement, path: str) -> Requirement:
    if item.operator not in (Operator.IN, Operator.NOT_IN):
        raise SelectorError(
            f'{path}.operator: Invalid value: "{item.operator}": not a valid selector operator, use In or NotIn'
        )
    if len(item.values) != 1:
        raise SelectorError(f"{path}.values: Invalid value: {list(item.values)}: must have exactly one element")
    return Requirement(item.key, Operator(item.operator), frozenset(item.values))


@dataclass(frozen=True, slots=True)
class NodeSelectorMatcher:
    """ORed terms. Terms that cannot be parsed never match; ``error`` describes them (lazy error rule)."""

    terms: tuple[TermMatcher, ...]
    error: str = ""

    @classmethod
    def compile(cls, selector: NodeSelector, path: str = "nodeSelectorTerms") -> NodeSelectorMatcher:
        """Compile leniently: leave out terms that cannot be parsed, and describe them in ``error``."""
        terms, errors = [], []
        for index, term in enumerate(selector.node_selector_terms):
            try:
                compiled = _compile_term(term, f"{path}[{index}]")
            except SelectorError as error:
                errors.append(str(error))
                continue
            if compiled is not None:
                terms.append(compiled)
        return cls(tuple(terms), ", ".join(errors))

    @classmethod
    def compile_strict(cls, selector: NodeSelector, path: str = "nodeSelectorTerms") -> NodeSelectorMatcher:
        """Compile, and refuse the whole selector if any term cannot be parsed.

        Raises:
            SelectorError: naming every such term.
        """
        compiled = cls.compile(selector, path)
        if compiled.error:
            raise SelectorError(compiled.error)
        return compiled

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        return any(term.matches(labels, name) for term in self.terms)


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """Node selector and required node affinity of a pod, together."""

    node_selector: Selector
    affinity: NodeSelectorMatcher | None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not self.node_selector.matches(labels):
            return False
        return self.affinity is None or self.affinity.matches(labels, name)

    @property
    def is_trivial(self) -> bool:
        """True if every node matches."""
        return self.affinity is None and self.node_selector.is_empty


def required_node_affinity(spec: PodSpec) -> RequiredNodeAffinity:
    """Compile a pod's demands on a node's labels and name. Never fails: a term with errors matches nothing."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    return RequiredNodeAffinity(
        selector_from_map(spec.node_selector),
        None if required is None else NodeSelectorMatcher.compile(required),
    )


@dataclass(frozen=True, slots=True)
class PreferredTerms:
    """Weighted terms. A node's score is the sum of the weights of the terms that match it."""

    terms: tuple[tuple[int, TermMatcher], ...]

    def score(self, labels: Mapping[str, str], name: str) -> int:
        return sum(weight for weight, term in self.terms if term.matches(labels, name))


def preferred_terms(terms: Iterable[PreferredSchedulingTerm], path: str = "") -> PreferredTerms:
    """Compile preferred node affinity. Terms of weight 0 or without requirements are skipped.

    Raises:
        SelectorError: if another term cannot be parsed.
    """
    compiled, errors = [], []
    for index, term in enumerate(terms):
        if term.weight == 0:
            continue
        try:
            matcher = _compile_term(term.preference, f"{path}[{index}]")
        except SelectorError as error:
            errors.append(str(error))
            continue
        if matcher is not None:
            compiled.append((term.weight, matcher))
    if errors:
        raise SelectorError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return PreferredTerms(tuple(compiled))
