"""Expressions of CEL: values, messages, and costs as upstream counts them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubesched.api.cel.device_expressions import compile_device_expression
from kubesched.api.cel.environment import CompilationError, Environment
from kubesched.api.cel.meter import EvaluationInterruptedError
from kubesched.api.cel.program import Program
from kubesched.api.cel.values import EvaluationError
from kubesched.api.quantity import parse_quantity

ENVIRONMENT = Environment({"x": "dyn", "names": "list<string>", "labels": "map<string,string>"})
VARIABLES = {"x": 7, "names": ["a", "b"], "labels": {"app": "web", "tier": "front"}}


def value_of(expression: str, **variables: Any) -> Any:
    return Program(ENVIRONMENT.compile(expression)).evaluate({**VARIABLES, **variables})


def error_of(expression: str) -> str:
    with pytest.raises(EvaluationError) as caught:
        value_of(expression)
    return str(caught.value)


VALUES: list[tuple[str, Any]] = [
    # operators
    ("1 + 2 * 3", 7),
    ("7 / -2", -3),
    ("-7 % 3", -1),
    ("7.0 / 2.0", 3.5),
    ('"a" + "b"', "ab"),
    ("[1] + [2]", [1, 2]),
    ("1 < 2.5", True),
    ("2u >= 2", True),
    ("x == 7.0", True),
    ('x == "7"', False),
    ('"b" > "a"', True),
    ("x > 5 ? 'big' : 'small'", "big"),
    ('"a" in names', True),
    ('"app" in labels', True),
    ("dyn(1) in [1.0]", True),
    # errors that logic operators absorb, on either side
    ("x == 7 || x / 0 == 1", True),
    ("x / 0 == 1 || x == 7", True),
    ("x / 0 == 1 && x == 8", False),
    # macros
    ("has(labels.app)", True),
    ("has(labels.nothing)", False),
    ("names.all(n, size(n) == 1)", True),
    ("names.exists_one(n, n == 'a')", True),
    ("[1, 2, 3].filter(n, n > 1)", [2, 3]),
    ("[1, 2, 3].map(n, n > 1, n * 10)", [20, 30]),
    ("labels.exists(k, labels[k] == 'web')", True),
    ("[[1, 2], [3]].map(l, l.map(n, n + 1))", [[2, 3], [4]]),
    ("cel.bind(n, x + 1, n * n)", 64),
    # two variables
    ("names.exists(i, n, i == 1 && n == 'b')", True),
    ("names.transformList(i, n, i)", [0, 1]),
    ("labels.transformMap(k, v, v + '!')", {"app": "web!", "tier": "front!"}),
    ("names.transformMapEntry(i, n, {n: i})", {"a": 0, "b": 1}),
    # optional values
    ("labels.?app.orValue('none')", "web"),
    ("labels.?nothing.orValue('none')", "none"),
    ("labels[?'nothing'].hasValue()", False),
    ("optional.of(1).optMap(n, n + 1).value()", 2),
    ("optional.none().or(optional.of(3)).value()", 3),
    ("[?labels.?app, ?labels.?nothing]", ["web"]),
    ("{?'a': labels.?nothing, ?'b': labels.?app}", {"b": "web"}),
    ("[1, 2].first().value() + [1, 2].last().value()", 3),
    # conversions
    ("int('42') + int(2.9)", 44),
    ("string(1.5) + string(true) + string(3u)", "1.5true3"),
    ("double('1e3')", 1000.0),
    ("bool('t')", True),
    ("type(1) == int && type('') == string", True),
    ("bytes('é').size()", 2),
    # strings
    ("'tacocat'.charAt(3)", "o"),
    ("'hello mellow'.indexOf('ello', 2)", 7),
    ("'hello mellow'.lastIndexOf('ello')", 7),
    ("'TacoCat'.lowerAscii() + 'é'.upperAscii()", "tacocaté"),
    ("'hello hello'.replace('he', 'we', 1)", "wello hello"),
    ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
    ("['a', 'b'].join('-')", "a-b"),
    ("'tacocat'.substring(0, 4)", "taco"),
    ("'  trim '.trim()", "trim"),
    # lists in a format may be mixed
    ("'%s %s %% %X'.format([1, ['a', 2], 'z'])", "1 [a, 2] % 7A"),
    ("'%s has %d (%.2f, %x)'.format([dyn('a'), dyn(2), dyn(1.5), dyn(255)])", "a has 2 (1.50, ff)"),
    ('strings.quote("a\\"b")', '"a\\"b"'),
    # regular expressions are RE2's
    ("'abc123'.matches('^[a-z]+[0-9]+$')", True),
    ("'abc 123'.find('[0-9]+')", "123"),
    ("'abc'.find('[0-9]+')", ""),
    ("'a1b22'.findAll('[a-z]([0-9]+)')", ["a1", "b22"]),
    ("'1 2 3'.findAll('[0-9]', 2)", ["1", "2"]),
    ("'(a)[('.findAll('[(a]')", ["(", "a", "("]),
    # lists and sets
    ("[1, 3, 2].isSorted() || [1, 2].isSorted()", True),
    ("[1, 3].sum() + [4, 2].min() + [4, 2].max()", 10),
    ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", 2),
    ("[dyn(1), dyn([dyn(2), dyn([3])])].flatten(2)", [1, 2, 3]),
    ("[3, 1, 2].sort()", [1, 2, 3]),
    ("['bb', 'a'].sortBy(s, size(s))", ["a", "bb"]),
    ("[1, 1, 2].distinct()", [1, 2]),
    ("lists.range(4).slice(1, 3).reverse()", [2, 1]),
    ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1], [1, 1])", True),
    ("names.includes('a')", True),
    # time
    ("timestamp('2024-02-29T10:20:30.5Z').getMilliseconds()", 500),
    ("timestamp('2024-02-29T23:30:00+01:00').getHours()", 22),
    ("timestamp('2024-02-29T00:30:00Z').getDate('-01:00')", 28),
    ("string(timestamp('2024-01-31T00:00:00Z') + duration('24h'))", "2024-02-01T00:00:00Z"),
    ("duration('1h30m').getMinutes()", 90),
    ("timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')", True),
    # the libraries of Kubernetes
    ("quantity('1Gi').sub(quantity('512Mi')).add(1).asInteger()", 536870913),
    ("quantity('1500m').isInteger()", False),
    ("quantity('1k').compareTo(quantity('1000'))", 0),
    ("quantity('1.5').asApproximateFloat()", 1.5),
    ("isQuantity('1Zi')", False),
    ("sign(quantity('-1'))", -1),
    ("semver('1.2.3').isLessThan(semver('1.10.0'))", True),
    ("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", True),
    ("semver('1.0.0+a') == semver('1.0.0+b')", True),
    ("dyn('1.2.3') == dyn(semver('1.2.3'))", False),
    ("dyn(semver('1.2.3')) == dyn(null)", False),
    ("semver('v01.2', true).minor()", 2),
    ("isSemver('v1.2.3')", False),
    ("ip('2001:db8::1').family()", 6),
    ("isIP('::ffff:1.2.3.4')", False),
    ("ip('127.0.0.1').isLoopback()", True),
    ("cidr('10.0.0.0/8').containsIP('10.9.8.7')", True),
    ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", True),
    ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
    ("url('https://u@h:8443/p?q=1').getHost()", "h:8443"),
    ("url('https://[::1]/').getHostname()", "::1"),
    ("isURL('relative')", False),
    ("format.dns1123Label().validate('Not').hasValue()", True),
    ("format.named('uuid').value().validate('6ba7b810-9dad-11d1-80b4-00c04fd430c8').hasValue()", False),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "want"), VALUES)
def test_an_expression_has_its_value(expression: str, want: Any) -> None:
    found = value_of(expression)
    assert found == want
    assert type(found) is type(want) or isinstance(want, bool | int | dict)


ERRORS = [
    ("labels.nothing == 'a'", "no such key: nothing"),
    ("x < 'one'", "no such overload"),
    ("x && true", "no such overload"),
    ("x.startsWith('a')", "no such overload: startsWith(int, string)"),
    ("1 / 0", "division by zero"),
    ("1 % 0", "modulus by zero"),
    ("9223372036854775807 + 1", "integer overflow"),
    ("0u - 1u", "unsigned integer overflow"),
    ("names[2]", "index out of bounds: 2"),
    ("optional.none().value()", "optional.none() dereference"),
    ("dyn(semver('1.2.3')) == dyn('1.2.3')", "no such overload"),
    ("dyn(quantity('1')) != dyn(1)", "no such overload"),
    ("dyn(ip('::1')) == dyn([1])", "no such overload"),
    ("semver('1.2').major()", "No Major.Minor.Patch elements found"),
    ("semver('1.02.3').major()", 'Minor number must not contain leading zeroes "02"'),
    ("sign(quantity('much'))", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
    ("lists.range(500000).all(i, lists.range(500000).all(j, true))", "operation cancelled: actual cost limit exceeded"),
    # the limit is no error that logic operators absorb
    ("true && lists.range(500000).all(i, i >= 0) || true", "operation cancelled: actual cost limit exceeded"),
    ("{'a': 1, 'a': 2}.a", "Failed with repeated key: a"),
    ("'abc'.matches('(' + '')", "error parsing regexp: `(`"),
    ("'%d'.format([dyn('a')])", "error during formatting: decimal clause can only be used on integers, was given string"),
    ("'%.2f'.format([dyn(1)])", "error during formatting: fixed-point clause can only be used on doubles, was given int"),
    ("('%s' + '%s').format([1])", "index 1 out of range"),
    ("('%' + 'q').format([1])", 'could not parse formatting clause: unrecognized formatting clause "q"'),
    ("('1' + '%').format([])", "unexpected end of string"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), ERRORS)
def test_an_evaluation_fails_with_upstreams_text(expression: str, text: str) -> None:
    assert error_of(expression) == text


PROBLEMS = [
    ("", "ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"),
    # what is called as a member, or not, against its declaration
    ("quantity('1').sign() == 1", "ERROR: <input>:1:19: found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'\n | quantity('1').sign() == 1\n | ..................^"),
    ("x.sign() == 1", "ERROR: <input>:1:7: found no matching overload for 'sign' applied to 'dyn.()'\n | x.sign() == 1\n | ......^"),
    ("isInteger(x)", "ERROR: <input>:1:10: found no matching overload for 'isInteger' applied to '(dyn)'\n | isInteger(x)\n | .........^"),
    ("names.indexOf('x', [1])", "ERROR: <input>:1:14: found no matching overload for 'indexOf' applied to 'list(string).(string, list(int))'\n | names.indexOf('x', [1])\n | .............^"),
    # literals
    ("duration('1x') == duration('1s')", "ERROR: <input>:1:10: invalid duration argument\n | duration('1x') == duration('1s')\n | .........^"),
    ("timestamp('1') == timestamp('2')", "ERROR: <input>:1:11: invalid timestamp argument\n | timestamp('1') == timestamp('2')\n | ..........^\nERROR: <input>:1:29: invalid timestamp argument\n | timestamp('1') == timestamp('2')\n | ............................^"),
    ("x.matches('(')", "ERROR: <input>:1:11: invalid matches argument\n | x.matches('(')\n | ..........^"),
    # formats
    ("'%d'.format(['a']) == ''", "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | '%d'.format(['a']) == ''\n | .............^"),
    ("'%s'.format([[quantity('1')]]) == ''", "ERROR: <input>:1:23: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity\n | '%s'.format([[quantity('1')]]) == ''\n | ......................^"),
    ("'%d'.format([1, 2]) == ''", "ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)\n | '%d'.format([1, 2]) == ''\n | ...........^"),
    ("'%d %d'.format([1]) == ''", "ERROR: <input>:1:15: index 1 out of range\n | '%d %d'.format([1]) == ''\n | ..............^"),
    ("x ==", "ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | x ==\n | ....^"),
    ("y", "ERROR: <input>:1:1: undeclared reference to 'y' (in container '')\n | y\n | ^"),
    ("names < 3", "ERROR: <input>:1:7: found no matching overload for '_<_' applied to '(list(string), int)'\n | names < 3\n | ......^"),
    ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
    ("x == 1 &&\n {'a': 1, 'b': 'c'}.size() == 1", "ERROR: <input>:2:16: expected type 'int' but found 'string'\n |  {'a': 1, 'b': 'c'}.size() == 1\n | ...............^"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), PROBLEMS)
def test_an_expression_that_cannot_be_compiled_names_the_place(expression: str, text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        ENVIRONMENT.compile(expression)
    assert str(caught.value) == f"compilation failed: {text}"


COSTS = [
    ("true", 0),
    ("x", 1),
    ("x == 7", 2),
    ("labels.app == 'web'", 3),
    ("labels.app.startsWith('w')", 3),
    ("[1, 2]", 10),
    ("{'a': 1}", 30),
    ("x in [1, 2, 3]", 14),
    # the pattern counts a quarter per character, the text (and one more) a tenth
    ("'0123456789'.matches('abcdefgh')", 4),
    ("true || x == 7", 0),
    ("x == 7 ? 1 : x", 2),
    ("quantity('1Gi').isLessThan(quantity('2Gi'))", 3),
]


@pytest.mark.parametrize(("expression", "cost"), COSTS)
def test_costs_are_counted_as_upstream_counts_them(expression: str, cost: int) -> None:
    assert Program(ENVIRONMENT.compile(expression)).cost(VARIABLES) == cost


def test_a_program_can_be_evaluated_again_with_other_values() -> None:
    program = Program(ENVIRONMENT.compile("names.map(n, n + string(x))"))
    assert program.evaluate({**VARIABLES, "x": 1}) == ["a1", "b1"]
    assert program.evaluate({**VARIABLES, "x": 2}) == ["a2", "b2"]


def test_a_lower_limit_can_be_given() -> None:
    program = Program(ENVIRONMENT.compile("x + x + x"))
    assert program.evaluate(VARIABLES, cost_limit=5) == 21
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        program.evaluate(VARIABLES, cost_limit=4)


def test_a_long_evaluation_ends_when_its_caller_says_so_and_logic_does_not_absorb_that() -> None:
    slow = "[1,2,3,4,5,6,7,8,9,10]"
    nested = f"{slow}.all(a, {slow}.all(b, {slow}.all(c, a + b + c > 0)))"
    checks = iter([False, False, True])
    program = Program(compile_device_expression(f"true || {nested}"))
    assert program.begin({}, interrupted=lambda: True).result() is True  # it was short
    program = Program(compile_device_expression(f"{nested} || true"))
    with pytest.raises(EvaluationInterruptedError):
        program.begin({}, interrupted=lambda: next(checks)).result()
    assert program.begin({}, interrupted=lambda: False).result() is True
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        program.begin({}, cost_limit=1500, interrupted=lambda: False).result()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("has(device.driver)", True),
        ("!has( device . capacity )", False),
        ("has(device.allowMultipleAllocations) && !device.allowMultipleAllocations", True),
        ("'has(device.driver)' == r'has(device.driver)' && has(device.driver) // has(device.driver)", True),
        ("""\"\"\"a" has(device.driver)\"\"\" == 'a" has(device.driver)' && has(device.driver)""", True),
        ("has(device.attributes['other'].model)", False),
    ],
)
def test_the_fields_of_a_device_are_there(expression: str, value: bool) -> None:
    variables = {
        "device.driver": "d",
        "device.allowMultipleAllocations": False,
        "device.attributes": {"other": {}},
        "device.capacity": {},
    }
    assert Program(compile_device_expression(expression)).evaluate(variables) is value


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("has(device.driver)\n && 1", "found no matching overload for '_&&_' applied to '(bool, int)'\n |  && 1\n | ."),
        ("has(device.driver) && 1", "'(bool, int)'\n | has(device.driver) && 1\n | ...................^"),
        ("has(device.drivers)", "undefined field 'drivers'\n | has(device.drivers)\n | ...^"),
        ("[1].exists(device, has(device.driver))", "cannot be the operand of a select operation"),
    ],
)
def test_an_error_beside_a_test_of_a_field_quotes_the_expression(expression: str, text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_device_expression(expression)
    assert text in str(caught.value)


def test_quantities_are_compared_exactly() -> None:
    environment = Environment({"q": "kubernetes.Quantity"})
    program = Program(environment.compile("q.isGreaterThan(quantity('0.1'))"))
    assert program.evaluate({"q": parse_quantity("100000001n")}) is True
    assert program.evaluate({"q": parse_quantity("100m")}) is False


def test_all_that_the_library_needs_is_imported_before_its_first_environment() -> None:
    """A signal whose handler raises aborts the process where the library imports by itself."""
    script = """
import sys
from kubesched.api.cel.environment import Environment
from kubesched.api.cel.engine import library
library()
before = set(sys.modules)
Environment({"self": "dyn"}).compile("self.a == 1")
print(sorted(set(sys.modules) - before))
"""
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_an_attribute_whose_type_is_unknown_is_no_argument_of_a_format() -> None:
    """As recorded from Kubernetes 1.36: the attributes of a device are of type any."""
    expression = '"%d-%s".format([device.attributes["gpu.example.com"].index, device.attributes["gpu.example.com"].model]) == "1-a100"'
    with pytest.raises(CompilationError) as caught:
        compile_device_expression(expression)
    assert str(caught.value) == (
        "compilation failed: ERROR: <input>:1:53: error during formatting: decimal clause can only be used on integers, "
        f"was given google.protobuf.Any\n | {expression}\n | {'.' * 52}^"
    )


def test_the_text_of_an_error_is_short() -> None:
    many = "[" + ",".join(["x.sign()"] * 1000) + "]"
    with pytest.raises(CompilationError) as caught:
        ENVIRONMENT.compile(many)
    assert len(str(caught.value)) < 20_000
    assert len(error_of("names[int('" + "9" * 5000 + "')]")) < 2_000
