"""Expressions that are meant to keep the scheduler busy, or to fill its memory, end within the limits of an evaluation.

They run in a process of their own, whose memory and CPU time are limited: one that is not bounded fails by name.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kubesched.api.cel.device_expressions import compile_device_expression
from kubesched.api.cel.environment import CompilationError, Environment
from kubesched.api.cel.meter import STEPS_PER_COST, EvaluationInterruptedError, Meter
from kubesched.api.cel.program import Evaluation, Program
from kubesched.api.cel.regex import states
from kubesched.api.cel.schema_rules import Failure, Rules
from kubesched.api.cel.values import EvaluationError

CANCELLED = "operation cancelled: actual cost limit exceeded"


def bound(count: int, step: str, last: str, first: str) -> str:
    """``first`` as ``x0``, and each further variable made by ``step`` of the one before, which it calls ``X``; so does ``last``."""
    expression = last.replace("X", f"x{count}")
    for number in range(count, 0, -1):
        expression = f"cel.bind(x{number},{step.replace('X', f'x{number - 1}')},{expression})"
    return f"cel.bind(x0,{first},{expression})"


def nested(last: str) -> str:
    """A list of 4 ** 25 elements, which are shared: 700 bytes."""
    return bound(25, "[X,X,X,X]", last, "[1]")


def doubled(last: str, first: str, count: int = 26) -> str:
    return bound(count, "X+X", last, first)


#: Work that is without a bound in values that are small: with a part of the limit, as they go the same way to its end.
LONG = {
    "equality": nested("X == X"),
    "inequality": nested("X != X"),
    "equality in a map": nested("{'a': X} == {'a': X}"),
    "equality of optional values": nested("optional.of(X) == optional.of(X)"),
    "membership": nested("X in [X]"),
    "flatten": nested("X.flatten(30) == []"),
    "format": nested("'%s'.format([X]) == ''"),
    "distinct": nested("[X, X].distinct() == []"),
    "indexOf": nested("[X].indexOf(X) == 0"),
    "lastIndexOf": nested("[X].lastIndexOf(X) == 0"),
    "sets": nested("sets.equivalent([X], [X])"),
    "includes": nested("[X].includes(X)"),
    "slice": nested("X.slice(0, 1) == X"),
    "join": nested("dyn(X).join() == ''"),
    "sort": nested("dyn([X, X]).sort() == X"),
    "order": "lists.range(400000).sort() == []",
    "constants": f"lists.range(300000).all(i, {' && '.join(['true'] * 1500)})",
    "maps that grow": "lists.range(100000).transformMapEntry(i, v, {i: v}) == {}",
    "regular expressions": r"lists.range(100000).all(i, ''.matches('\\pL{1' + '0}') || true)",
    "a pattern of many states": doubled("X.matches('(([ab]|ab|ba|aba|bab)?){1000}c')", "'abbabaabab'", 12),
    "a pattern of many states to find": doubled("X.find('((a|b){0,1000}a)c') == ''", "'abbabaabab'", 12),
    "searches to the end of the text": doubled("X.findAll('a*b|a') == []", "'aaaaaaaa'", 11),
    "time zones": "lists.range(100000).all(i, timestamp(0).getHours('Nowhere/' + string(i)) == 0 || true)",
    "search from the end": doubled("X.lastIndexOf('b' + X.substring(0, size(X) / 2)) == 1", "'aaaaaaaaaa'", 12),
    "long keys": doubled(
        "cel.bind(m, {X: 1}, cel.bind(k, X.replace('a', 'a'), lists.range(99999).all(i, m[k] == 1)))", "'aaaaaaaaaa'", 11
    ),
    "long versions": doubled(
        "cel.bind(v, semver('1.0.0-' + X.substring(1)), lists.range(99999).all(i, !v.isLessThan(v)))", "'.a.a.a.a'", 10
    ),
}  # fmt: skip

#: Results that are large, from one call: with the whole limit, as they are to be refused before they are made.
LARGE = {
    "range": "lists.range(2147483647) == []",
    "concatenated lists": doubled("size(X) == 1", "[1, 2, 3, 4, 5, 6, 7, 8]"),
    "concatenated texts": doubled("size(X) == 1", "'aaaaaaaaaa'"),
    "concatenated bytes": doubled("size(X) == 1", "b'aaaaaaaaaa'"),
    "replace": bound(14, "X.replace('a','aaaaaaaaaaaaaaaaaaaaaaaaaaa')", "X == ''", "'a'"),
    "replace of nothing": bound(14, "X.replace('', X)", "X == ''", "'ab'"),
    "precision": "'%.2000000000f'.format([1.0]) == ''",
    "join": "lists.range(80000).map(i, 'aaaaa').join(lists.range(8000).map(i, 'aaaaa').join()) == ''",
    "split": doubled("X.split('') == []", "'éééééééééé'", 17),
    "findAll": doubled("X.findAll('.') == []", "'aaaaaaaaaa'", 17),
    "lists in a list": "lists.range(90000).map(i, lists.range(100)) == []",
    "texts as hexadecimal": doubled("'%x'.format([X]) == ''", "'aaaaaaaaaa'", 17),
}

#: Other ends: what Python itself refuses, or upstream.
ENDS = {
    "digits of a precision": ("('%.' + '" + "9" * 5000 + "f').format([1.0]) == ''", "could not parse formatting clause"),
    "digits of a duration": ("duration('" + "9" * 4500 + "' + 's') == duration('1s')", "time: invalid duration"),
    "digits of a fraction": ("duration('0." + "1" * 9000 + "' + 's') == duration('1s')", "value"),
    "digits of a number": ("int('" + "1" * 9000 + "') == 1", "strconv.ParseInt"),
    "a URL": (doubled("url('https://' + X).getHost() == 'a'", "'aaaaaaaaaa'", 15), "URL parse error"),
    "an address": (doubled("ip(X).family() == 4", "'1111111111'", 15), "IP Address"),
    "a pattern": (doubled("''.find(X) == ''", "'((((((((((((((((((((((((((((((('", 13), "error parsing regexp: longer than"),
    "the text of an error": (doubled("{'a': 1}[X] == 1", "'aaaaaaaaaa'", 12), "no such key: aaa"),
    "chained optMap": ("x" + ".optMap(y,y)" * 30, "compilation failed: too many optMap"),
    "types that double": (bound(25, "{X:X}", "true", "[1]"), "compilation failed: 25 maps have keys"),
    "patterns to compile": (" || ".join([r"x.matches('\\pL{100}')"] * 400), "compilation failed: ERROR: <input>:1:"),
    "a long expression": ("x == '" + "a" * 100_000 + "'", "compilation failed: ERROR: <input>:-1:-1: expression code point size"),
    "parentheses": ("(" * 3000 + "1" + ")" * 3000, "compilation failed: "),
}  # fmt: skip
ATTACKS = (
    [(f"long {name}", expression, 50_000, CANCELLED) for name, expression in LONG.items()]
    + [(f"large {name}", expression, 1_000_000, CANCELLED) for name, expression in LARGE.items()]
    + [(f"end {name}", expression, 1_000_000, end) for name, (expression, end) in ENDS.items()]
)
#: For all of them together, and twenty times what they take.
CPU_SECONDS = 200
MEMORY = 2 << 30


def _evaluate_all() -> None:
    """In a process of its own: write how each ends, a line each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    environment = Environment({"x": "dyn"})
    for name, expression, limit, _ in ATTACKS:
        try:
            end = f"value {Program(environment.compile(expression)).evaluate({'x': 1}, cost_limit=limit)}"
        except (CompilationError, EvaluationError) as error:
            end = str(error)
        except Exception as error:
            end = f"escaped: {error!r}"
        sys.stdout.write(f"{json.dumps([name, end])}\n")
        sys.stdout.flush()


@pytest.fixture(scope="module")
def ends() -> dict[str, str]:
    done = subprocess.run([sys.executable, __file__], check=False, capture_output=True, text=True, timeout=600)
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    return {**found, "stderr": done.stderr}


@pytest.mark.parametrize(("name", "wanted"), [pytest.param(name, end, id=name) for name, _, _, end in ATTACKS])
def test_an_attack_ends(ends: dict[str, str], name: str, wanted: str) -> None:
    assert name in ends, f"the process ended, or its time or memory did: {ends['stderr'][-300:]}"
    assert ends[name].startswith(wanted), ends[name]
    assert len(ends[name]) < 20_000


def test_a_selector_has_a_length_at_most() -> None:
    compile_device_expression("device.driver == '" + "a" * 10_221 + "'")
    with pytest.raises(CompilationError, match="may not be more than 10240 bytes"):
        compile_device_expression("device.driver == '" + "a" * 10_222 + "'")


def program_of(expression: str) -> Program:
    return Program(Environment({"x": "dyn"}).compile(expression))


def test_the_caller_is_asked_often_also_while_one_function_runs() -> None:
    looks = 0

    def interrupted() -> bool:
        nonlocal looks
        looks += 1
        return False

    with pytest.raises(EvaluationError, match=CANCELLED):
        program_of(LONG["equality"]).begin({"x": 1}, cost_limit=100_000, interrupted=interrupted).result()
    # 1,000,000 steps at most, and a look every 10,000.
    assert 50 < looks < 200


@pytest.mark.parametrize("name", ["equality", "flatten", "format", "distinct", "join", "order", "regular expressions"])
def test_one_function_is_interrupted_while_it_runs(name: str) -> None:
    looks = iter([False] * 20 + [True])
    with pytest.raises(EvaluationInterruptedError):
        program_of(LONG[name]).begin({"x": 1}, interrupted=lambda: next(looks)).result()
    assert list(looks) == []


def test_values_that_are_nested_too_deeply_end_the_evaluation() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(EvaluationError, match="operation cancelled: values are nested too deeply"):
        program_of("x == [x] || true").evaluate({"x": deep})


@pytest.mark.parametrize(
    "expression",
    [
        "x.all(i, x.map(j, j) != [])",
        "x.all(i, i in x)",
        "x.map(i, string(i)).all(s, s.matches('^[0-9]{1,63}$') && s.replace('1', 'one') != s)",
        "x.exists(i, x.filter(j, j > i).sort() == [1])",
        "x.all(i, x.max() >= i && x.sum() > i)",
        "x.transformMapEntry(i, v, {string(v): v}).all(k, k.startsWith('1') || k.size() > 0)",
    ],
)
def test_what_upstream_allows_is_allowed_by_the_steps(expression: str) -> None:
    """The limit of steps ends what upstream counts too little, not expressions as people write them."""
    evaluation = program_of(expression).begin({"x": list(range(100))}, cost_limit=10**9)
    evaluation.result()
    assert 0 < evaluation.steps < 3 * STEPS_PER_COST * evaluation.cost


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("abc", 3, 3),
        ("a{1000}", 1_000, 1_000),
        ("(a{30}){30}", 900, 900),
        ("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", 100, 300),
        (r"\pL{100}", 100_000, 1_000_000),
        (r"\p{Greek}{9}", 9_000, 100_000),
        (r"\pL" * 3000, 1_000_000, 1_000_000),
        ("(" * 50_000, 0, 100_000),
        ("a" * 1_000_000, 1_000_000, 1_000_000),
    ],
)
def test_the_automaton_of_a_pattern_is_estimated(pattern: str, least: int, most: int) -> None:
    assert least <= states(pattern) <= most


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("'is ' + self.a", "is x"),
        ("self.b", "message"),
        ("'two\\nlines'", "message"),
        ("'  '", "message"),
        ("'abcdefgh'.replace('', '" + "x" * 1000 + "')", "message"),
        (nested("dyn(X)"), "message"),
    ],
)
def test_the_message_of_a_rule_is_a_short_text_or_the_one_that_is_written(expression: str, shown: str) -> None:
    rule = {"rule": "false", "message": "message", "messageExpression": expression}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-validations": [rule]}
    rules = Rules(schema, lambda schema, data: iter(()))
    (failure,) = rules.failures({"a": "x"}, None)
    assert failure.text == shown
    assert list(rules.malformed()) == []


OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}


def ruled(schema: dict[str, Any], *rules: str) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": [{"rule": rule} for rule in rules]}


def list_of(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema, **more}


def levels(count: int, schema: dict[str, Any], *rules: str) -> dict[str, Any]:
    """Objects in each other, each with the rules."""
    for _ in range(count):
        schema = ruled({"type": "object", "properties": {"a": schema}}, *rules)
    return schema


def deep(count: int, data: Any) -> Any:
    for _ in range(count):
        data = {"a": data}
    return data


def members(schema: Mapping[str, Any], data: Any) -> Iterator[tuple[str | int, Mapping[str, Any], Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            child = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if child is not None:
                yield key, child, value
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield index, schema["items"], value


def admitted(schema: dict[str, Any], data: Any, old: Any = None) -> tuple[list[Failure], Meter]:
    """Return the failures that the rules find in an object, and the meter of what that took."""
    meters: list[Meter] = []

    def metered(limit: int) -> Meter:
        meters.append(Meter(limit))
        return meters[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.api.cel.schema_rules.Meter", metered)
        failures = list(Rules(schema, members).failures(data, old))
    (meter,) = meters
    return failures, meter


def test_the_expressions_for_messages_and_the_steps_count_for_the_budget_of_an_object() -> None:
    rule = {
        "rule": "false",
        "messageExpression": "lists.range(3000).sort().map(i, string(i)).join(',') == '' ? 'a' : 'b'",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.api.cel.schema_rules._BUDGET", 200_000)
        failures, _ = admitted({"type": "object", "x-kubernetes-validations": [rule] * 30}, {})
    assert 1 < len(failures) < 30
    assert [failure.text == OUT_OF_BUDGET for failure in failures] == [False] * (len(failures) - 1) + [True]


KEYED: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
PARTS = [{"id": f"p{number}", "n": number} for number in range(2_000)]
PART = {"type": "object", "properties": {"id": TEXT, "n": NUMBER}}


@pytest.mark.parametrize(
    ("schema", "data", "old"),
    [
        (levels(5, ruled(list_of(TEXT), "self.all(x, x.size() < 9)"), "has(self.a)"), deep(5, ["text"] * 10_000), None),
        (list_of(ruled(PART, "self.n >= oldSelf.n"), **KEYED), PARTS, PARTS[::-1]),
        (list_of(ruled(list_of(ruled(NUMBER, "self < 10")), "self.size() <= 10")), [list(range(10))] * 1_000, None),
    ],
)
def test_objects_as_they_are_met_stay_within_the_budget(schema: dict[str, Any], data: Any, old: Any) -> None:
    failures, meter = admitted(schema, data, old)
    assert failures == []
    assert 0 < meter.total < meter.limit / 2


MANY = range(2_000)
#: Cheap work, done so often that all of it together would take long.
HOSTILE: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "a rule that costs nothing, on each item": (list_of(ruled(NUMBER, "true")), [0] * 20_000, None),
    "many rules": (list_of(ruled(NUMBER, *["self >= 0"] * 100)), [0] * 1_000, None),
    "lists in lists": (list_of(ruled(list_of(NUMBER), "self.all(x, self.all(y, x + y >= 0))")), [[*range(20)]] * 1_000, None),
    "maps in maps": (
        {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": ruled(TEXT, "self != ''")}},
        {f"a{one}": {f"b{two}": "x" for two in range(100)} for one in range(100)},
        None,
    ),
    "times that are read": (ruled(list_of({"type": "string", "format": "date-time"}), "true"), ["2025-06-15T15:06:40Z"] * 10_000, None),
    "bytes that are read": (ruled(list_of({"type": "string", "format": "byte"}), "true"), ["YWFh" * 1_000] * 1_000, None),
    "values that no rule looks at": (ruled(list_of(NUMBER), "true"), [0] * 100_000, None),
    "last states that are converted": (ruled(list_of(NUMBER), "true"), [], [0] * 100_000),
    "items that are looked for by many keys": (
        list_of(ruled({"type": "object", "properties": {}}, "self == oldSelf"), **{**KEYED, "x-kubernetes-list-map-keys": [f"k{number}" for number in MANY]}),
        [{} for _ in MANY],
        [{}],
    ),
    "errors with long texts": (list_of(ruled(TEXT, f"self.x == '{'x' * 10_000}'")), ["a"] * 1_000, None),
    "members that no schema knows": (
        levels(100, ruled({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "true")),
        deep(100, {f"a{number}": 1 for number in range(100_000)}),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_refused_at_the_end_of_its_budget(name: str) -> None:
    """Each would take more than 1,000,000 steps; what is begun with some left may take one charge more than there is."""
    schema, data, old = HOSTILE[name]
    evaluated = 0
    begin = Program.begin

    def counted(*args: Any, **options: Any) -> Evaluation:
        nonlocal evaluated
        evaluated += 1
        return begin(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.api.cel.schema_rules._BUDGET", 20_000)
        patch.setattr(Program, "begin", counted)
        failures, meter = admitted(schema, data, old)
    assert failures[-1].text == OUT_OF_BUDGET
    assert failures[-1].is_transition  # also where the value is what it was
    assert meter.total > meter.limit
    assert evaluated * STEPS_PER_COST < 20_000 * STEPS_PER_COST  # each was charged, whatever it cost


def test_where_the_budget_ended_is_told() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.api.cel.schema_rules._BUDGET", 20_000)
        schema = {"type": "object", "properties": {"few": ruled(TEXT, "true"), "many": list_of(ruled(NUMBER, "true"))}}
        (failure,), _ = admitted(schema, {"few": "a", "many": [0] * 9_000})
    assert failure.place[0] == "many"
    assert 500 < int(failure.place[1]) < 9_000
    assert failure.kind == "integer"


def test_values_are_converted_once_for_the_rules_of_all_levels() -> None:
    taken = [admitted(levels(count, list_of(NUMBER), "true"), deep(count, [0] * 1_000))[1].total for count in (2, 100)]
    assert taken[1] < 2 * taken[0]


if __name__ == "__main__":
    _evaluate_all()
