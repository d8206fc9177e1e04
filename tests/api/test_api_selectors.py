"""Selectors against a naive model, and the words in which unusable ones are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_pod, field_term, node_affinity, requirement, selector_of, term
from kubesched.api.selectors import (
    NodeSelectorMatcher,
    Operator,
    Requirement,
    SelectorError,
    compile_label_selector,
    is_label_value,
    is_qualified_name,
    parse_int64,
    parse_selector_text,
    preferred_terms,
    required_node_affinity,
    selector_from_map,
)
from kubesched.api.types import LabelSelector, LabelSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm

KEYS = ["a", "b", "example.com/c"]
VALUES = ["", "x", "y", "5", "0206", "17"]
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from([*VALUES, "-3", "1_0", "9" * 20]), max_size=3)
Item = tuple[str, str, list[str]]
requirements: st.SearchStrategy[Item] = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["In", "NotIn"]), st.lists(st.sampled_from(VALUES), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
)  # fmt: skip
comparisons = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(["Gt", "Lt"]), st.sampled_from([["5"], ["0206"], ["17"], ["0"]])
)


def holds(item: Item, found: Mapping[str, str]) -> bool:
    """One requirement, in the words of the table."""
    key, operator, values = item
    if operator == "In":
        return key in found and found[key] in values
    if operator == "NotIn":
        return key not in found or found[key] not in values
    if operator in ("Exists", "DoesNotExist"):
        return (key in found) == (operator == "Exists")
    if key not in found or re.fullmatch(r"[+-]?[0-9]{1,19}", found[key]) is None or abs(int(found[key])) >= 1 << 63:
        return False
    number, bound = int(found[key]), int(values[0])
    return number > bound if operator == "Gt" else number < bound


@given(labels, labels, st.lists(requirements, max_size=3))
def test_label_selectors_agree_with_the_model(found: dict[str, str], pairs: dict[str, str], items: list[Item]) -> None:
    pairs = {key: value for key, value in pairs.items() if is_label_value(value)}
    selector = compile_label_selector(
        LabelSelector(
            match_labels=pairs,
            match_expressions=tuple(
                LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))
                for key, operator, values in items
            ),
        )
    )
    want = all(found.get(key) == value for key, value in pairs.items()) and all(holds(item, found) for item in items)
    assert selector.matches(found) is want
    assert selector.is_empty is (not pairs and not items)


@given(
    labels, st.lists(st.lists(requirements | comparisons, max_size=2), max_size=3), st.sampled_from(["n1", "n2", ""])
)
def test_node_selectors_agree_with_the_model(found: dict[str, str], terms: list[list[Item]], name: str) -> None:
    selector = selector_of(
        *(term(*(requirement(key, operator, *values) for key, operator, values in items)) for items in terms)
    )
    want = any(items and all(holds(item, found) for item in items) for items in terms)
    assert NodeSelectorMatcher.compile(selector).matches(found, name) is want
    assert NodeSelectorMatcher.compile_strict(selector).matches(found, name) is want


@given(labels, st.lists(requirements | comparisons, min_size=1, max_size=3))
def test_the_text_form_means_the_same(found: dict[str, str], items: list[Item]) -> None:
    words = {"In": "in", "NotIn": "notin"}
    parts = []
    for key, operator, values in items:
        if operator in words:
            parts.append(f"{key} {words[operator]} ({','.join(values)})")
        elif operator in ("Gt", "Lt"):
            parts.append(f"{key}{'>' if operator == 'Gt' else '<'}{values[0]}")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    assert parse_selector_text(", ".join(parts)).matches(found) is all(holds(item, found) for item in items)


# -- absent, empty, maps -----------------------------------------------------------------------------------


def test_an_absent_selector_matches_nothing_and_is_not_empty() -> None:
    nothing, everything = compile_label_selector(None), compile_label_selector(LabelSelector())
    assert (nothing.matches({}), nothing.matches({"a": "b"}), nothing.is_empty) == (False, False, False)
    assert (everything.matches({}), everything.matches({"a": "b"}), everything.is_empty) == (True, True, True)


def test_a_map_matches_its_pairs_and_nothing_asked_matches_everything() -> None:
    assert selector_from_map(None).is_empty
    assert selector_from_map({}).is_empty
    selector = selector_from_map({"b": "not a label value!", "a": "1"})
    assert selector.matches({"a": "1", "b": "not a label value!", "c": ""})
    assert not selector.matches({"a": "1"})


# -- what is refused ---------------------------------------------------------------------------------------

REFUSED: list[tuple[str, str, tuple[str, ...], bool, str]] = [
    # key, operator, values, node selector, error
    ("a b", "Exists", (), True, 'at.key: Invalid value: "a b"'),
    ("/a", "Exists", (), True, "at.key"),
    ("UPPER/a", "Exists", (), True, "at.key"),
    ("a", "Odd", (), True, 'at.operator: Invalid value: "Odd": not a valid selector operator, use one of In, NotIn, Exists, DoesNotExist, Gt, Lt'),
    ("a", "Gt", ("1",), False, 'at.operator: Invalid value: "Gt": not a valid selector operator, use one of In, NotIn, Exists, DoesNotExist'),
    ("a", "In", (), True, "at.values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
    ("a", "NotIn", (), True, "at.values: Invalid value: []"),
    ("a", "Exists", ("x",), True, "at.values: Invalid value: ['x']: values set must be empty for exists and does not exist"),
    ("a", "DoesNotExist", ("x",), True, "at.values"),
    ("a", "Gt", (), True, "at.values: Invalid value: []: for 'Gt', 'Lt' operators, exactly one value is required"),
    ("a", "Lt", ("1", "2"), True, "exactly one value is required"),
    ("a", "Gt", ("x",), True, "at.values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ("a", "Gt", ("-5",), True, 'at.values[0]: Invalid value: "-5": a label value is'),
    ("a", "Gt", ("+5",), True, "at.values[0]"),
    ("a", "Gt", ("9223372036854775808",), True, "the value must be an integer"),
    ("a", "In", ("x", "-y"), True, 'at.values[1]: Invalid value: "-y"'),
    ("a", "In", ("x" * 64,), True, "at.values[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "operator", "values", "node", "error"), REFUSED)
def test_refused(key: str, operator: str, values: tuple[str, ...], node: bool, error: str) -> None:
    item = LabelSelectorRequirement(key=key, operator=operator, values=values)
    with pytest.raises(SelectorError) as caught:
        _ = (
            NodeSelectorMatcher.compile_strict(selector_of(term(requirement(key, operator, *values))), "at")
            if node
            else compile_label_selector(LabelSelector(match_expressions=(item,)), "at")
        )
    where = "at[0].matchExpressions[0]" if node else "at.matchExpressions[0]"
    assert error.replace("at.", f"{where}.", 1) in str(caught.value)


NAMES = [
    ("a", True), ("example.com/a", True), ("a.b-c_d", True), ("A9", True), ("x" * 63, True), ("x" * 64, False), ("", False), ("a/", False),
    ("/a", False), ("-a", False), ("a-", False), ("a b", False), ("a/b/c", False), ("Ex.com/a", False), ("ä", False), ("a\n", False),
    (f"{'a' * 253}/x", True), (f"{'a' * 254}/x", False), ("a..b/x", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "want"), NAMES)
def test_qualified_names(name: str, want: bool) -> None:
    assert is_qualified_name(name) is want


@pytest.mark.parametrize(("value", "want"), [("", True), ("a", True), ("a.B_c-9", True), ("-a", False), ("a.", False), ("x" * 63, True), ("x" * 64, False), ("a b", False)])  # fmt: skip
def test_label_values(value: str, want: bool) -> None:
    assert is_label_value(value) is want


NUMBERS = [
    ("0206", 206), ("-5", -5), ("+5", 5), ("0", 0), ("", None), (" 5", None), ("5 ", None), ("1_0", None), ("0x1", None), ("5.0", None),
    ("9223372036854775807", (1 << 63) - 1), ("9223372036854775808", None), ("-9223372036854775808", -(1 << 63)), ("5\n", None), ("\u0665", None),
    ("9" * 5000, None), ("-" + "9" * 5000, None), ("0" * 5000 + "7", 7), ("-" + "0" * 5000, 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), NUMBERS)
def test_int64(text: str, want: int | None) -> None:
    assert parse_int64(text) == want


@pytest.mark.parametrize("text", ["a b", "a in x", "a in ()b", "=x", ",", "a,,b", "!", "a in (x", "a > 5 6"])
def test_a_text_that_is_no_selector_is_named(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector_text(text)


@pytest.mark.parametrize(("text", "want"), [("a=b", True), ("a==b", True), ("a!=b", False), ("c!=b", True), ("a", True), ("!a", False), ("a=", False), ("a==", False), ("", True)])  # fmt: skip
def test_the_text_form(text: str, want: bool) -> None:
    assert parse_selector_text(text).matches({"a": "b"}) is want


# -- node selectors ----------------------------------------------------------------------------------------

broken = term(requirement("a", "Gt", "x"))
TERMS: list[tuple[str, list[NodeSelectorTerm], str, bool]] = [
    ("no terms match no node", [], "n1", False),
    ("an empty term matches no node", [term()], "n1", False),
    ("an empty term does no harm", [term(), field_term("n1")], "n1", True),
    ("a name", [field_term("n1")], "n1", True),
    ("another name", [field_term("n1")], "n2", False),
    ("two names in one requirement are unparsable", [field_term("n1", "n2")], "n1", False),
    ("not that name", [term(fields=[requirement("metadata.name", "NotIn", "n1")])], "n2", True),
    ("Exists is no field operator", [term(fields=[requirement("metadata.name", "Exists")])], "n1", False),
    ("an unknown field is empty", [term(fields=[requirement("spec.x", "In", "n1")])], "n1", False),
    ("and so unlike anything", [term(fields=[requirement("spec.x", "NotIn", "n1")])], "n1", True),
    ("a node without name matches any field", [field_term("n1")], "", True),
    ("an unparsable term never matches", [broken], "n1", False),
    ("but others do", [broken, field_term("n1")], "n1", True),
    ("labels and fields are both needed", [term(requirement("a", "Exists"), fields=[requirement("metadata.name", "In", "n1")])], "n1", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "terms", "node", "want"), TERMS)
def test_node_selector(name: str, terms: list[NodeSelectorTerm], node: str, want: bool) -> None:
    assert NodeSelectorMatcher.compile(selector_of(*terms)).matches({}, node) is want, name


def test_what_is_wrong_with_terms_is_remembered_by_the_lenient_and_raised_by_the_strict() -> None:
    selector = selector_of(field_term("n1"), broken, field_term("n1", "n2"))
    error = NodeSelectorMatcher.compile(selector, "here").error
    assert "here[1].matchExpressions[0].values[0]" in error
    assert "here[2].matchFields[0].values" in error
    with pytest.raises(SelectorError) as caught:
        NodeSelectorMatcher.compile_strict(selector, "here")
    assert str(caught.value) == error


def test_required_affinity_is_selector_and_terms() -> None:
    both = required_node_affinity(
        a_pod(node_selector={"a": "1"}, affinity=node_affinity(required=[term(requirement("b", "Exists"))])).spec
    )
    assert both.matches({"a": "1", "b": ""}, "n")
    assert not both.matches({"a": "1"}, "n")
    assert not both.matches({"b": ""}, "n")
    assert not both.is_trivial
    assert required_node_affinity(a_pod().spec).is_trivial
    assert required_node_affinity(a_pod(node_selector={}).spec).is_trivial
    assert not required_node_affinity(a_pod(affinity=node_affinity(required=[])).spec).is_trivial


def preferred(*terms: tuple[int, NodeSelectorTerm]) -> list[PreferredSchedulingTerm]:
    return [PreferredSchedulingTerm(weight=weight, preference=item) for weight, item in terms]


def test_preferred_terms_add_up() -> None:
    terms = preferred_terms(
        preferred((1, field_term("n1")), (10, term(requirement("a", "Exists"))), (100, term()), (0, broken))
    )
    assert [terms.score({}, "n1"), terms.score({"a": ""}, "n1"), terms.score({"a": ""}, "n2")] == [1, 11, 10]
    with pytest.raises(SelectorError, match=r"there\[1\]"):
        preferred_terms(preferred((1, field_term("n1")), (1, broken)), "there")


def test_requirements_are_values() -> None:
    one = Requirement("a", Operator.IN, frozenset({"x", "y"}))
    assert one == Requirement("a", Operator.IN, frozenset({"y", "x"}))
    assert len({one, Requirement("a", Operator.IN, frozenset({"y", "x"}))}) == 1
