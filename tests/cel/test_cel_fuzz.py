"""Random expressions over every function: an evaluation ends within its limits, in a value or an error of CEL.

``make fuzz-cel`` runs many more. A failure names the seed, and shows the expression.
"""

from __future__ import annotations

import os
import random
import re
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubesched.api.cel.environment import CompilationError, Environment, declared_overloads
from kubesched.api.cel.program import Program
from kubesched.api.cel.values import EvaluationError

SECONDS = float(os.environ.get("KUBESCHED_FUZZ_SECONDS", "0"))
SEEDS = 250
#: For the short run; the long one has upstream's.
COST_LIMIT = 1_000_000 if SECONDS else 20_000
#: One evaluation is to take a second or two. The bounds are wide, for machines that are slow or busy.
CPU_SECONDS = 20
MEMORY = 1 << 30
STATM = Path("/proc/self/statm")

ENVIRONMENT = Environment({"x": "dyn", "text": "string", "numbers": "list<int>", "labels": "map<string,string>"})
VARIABLES = {"x": {"a": [1, "b", None]}, "text": "a-b.c", "numbers": [3, 1, 2], "labels": {"app": "web"}}

#: Expressions of a type, with the types of what they are made of in braces.
TEMPLATES = """
int: 0 | 1 | -1 | 7 | 100 | 65536 | 2147483647 | 9223372036854775807 | -9223372036854775808
int: ({int} + {int}) | ({int} * {int}) | ({int} - {int}) | ({int} / {int}) | ({int} % {int}) | size({string}) | size({list<int>})
int: int({double}) | int({string}) | int({timestamp}) | ({bool} ? {int} : {int}) | {list<int>}[{int}] | size({map})
uint: 3u | 18446744073709551615u | uint({int}) | ({uint} + {uint})
double: 1.5 | -0.0 | 1e308 | double({string}) | double({int}) | ({double} * {double}) | ({double} / {double})
bool: true | false | ({dyn} == {dyn}) | ({dyn} != {dyn}) | ({int} < {int}) | ({string} <= {string}) | !{bool}
bool: ({bool} && {bool}) | ({bool} || {bool}) | ({dyn} in {list<dyn>}) | ({string} in {map}) | has(labels.app) | isURL({string})
bool: {string}.contains({string}) | {string}.startsWith({string}) | {string}.endsWith({string}) | {string}.matches({pattern})
bool: {list<int>}.all(i, i < {int}) | {list<int>}.exists(i, {bool}) | {list<int>}.exists_one(i, i == {int}) | {map}.all(k, k == {string})
string: '' | 'a' | 'aé漢' | '%s %d %.3f' | '%.300f' | '%.99999999f%x' | '1.2.3-a.b' | '10.0.0.0/8' | '127.0.0.1' | '1h3.5s' | '5Gi'
string: 'https://u@h:1/p?q=1' | '2024-02-29T10:20:30.5Z' | 'Europe/Berlin' | text | ({string} + {string}) | string({int}) | string({double})
string: string({bytes}) | {string}.replace({string}, {string}) | {list<string>}.join({string}) | {string}.format([{dyn}, {dyn}])
string: {string}.format({list<dyn>}) | cel.bind(s, {string}, s + s + s + s) | (['a'].map(i, {string})[0]) | labels[{string}]
pattern: 'a' | '.*' | 'a{1000}' | r'\\pL{30}' | '(a|b)*[^c]+$' | '[[:alpha:]]{5}' | '(' | {string}
bytes: b'ab' | bytes({string}) | ({bytes} + {bytes})
timestamp: timestamp({string}) | timestamp({int}) | ({timestamp} + {duration}) | timestamp('2024-02-29T10:20:30.5Z')
duration: duration({string}) | ({timestamp} - {timestamp}) | duration('1h') | ({duration} + {duration})
list<int>: [] | [1, 2, 3] | numbers | lists.range({int}) | lists.range(300) | lists.range(3000) | ({list<int>} + {list<int>}) | [{int}, {int}]
list<int>: {list<int>}.map(i, {int}) | {list<int>}.filter(i, {bool}) | {list<int>}.map(i, -i) | {list<int>}.sortBy(i, -i) | {list<int>}.sort()
list<int>: {list<int>}.reverse() | {list<int>}.distinct() | {list<int>}.slice(0, {int}) | cel.bind(l, {list<int>}, l + l + l)
list<string>: ['a', 'b'] | [{string}, {string}] | {list<int>}.map(i, {string}) | {string}.split({string}) | {string}.split('') | {list<string>}.sort()
list<dyn>: [] | [dyn({dyn}), dyn({dyn})] | {list<int>}.map(i, dyn({dyn})) | {list<dyn>}.flatten() | {list<dyn>}.flatten({int}) | ({list<dyn>} + {list<dyn>})
list<dyn>: cel.bind(l, {list<dyn>}, [l, l, l, l]) | cel.bind(l, {list<dyn>}, [dyn(l), dyn([l, l])].flatten(7)) | {list<dyn>}.distinct()
map: labels | {{'a': {string}}} | {{{string}: {string}}} | {list<string>}.transformMapEntry(i, v, {{v: v}}) | {map}.transformMap(k, v, {string})
dyn: x | {int} | {uint} | {double} | {bool} | {string} | {bytes} | {list<int>} | {list<string>} | {list<dyn>} | {map} | {timestamp} | {duration}
dyn: dyn({dyn}) | null | x.a | x[{dyn}] | optional.of({dyn}) | {kubernetes.Quantity} | {kubernetes.Semver} | {net.IP} | {net.CIDR} | {kubernetes.URL}
dyn: cel.bind(v, {dyn}, [v, v]) | cel.bind(v, {dyn}, {{'a': v, 'b': v}}) | optional.of({dyn}).optMap(v, v) | x.?a.orValue({dyn}) | [?optional.of({dyn})]
"""
_HOLE = re.compile(r"\{([a-zA-Z][\w.<>]*)\}")


def _known_templates() -> dict[str, list[str]]:
    """The templates above, and one for every overload that is declared."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in TEMPLATES.strip().splitlines():
        kind, _, rest = line.partition(": ")
        found[kind] += rest.split(" | ")
    for _, _, signature, result in declared_overloads():
        head, _, args = signature.replace("\\", "").removesuffix(")").partition("(")
        target, _, name = head.rpartition(".")
        is_member = target.startswith(("kubernetes.", "net.", "string", "list<", "dyn"))
        holes = ", ".join(f"{{{_plain(arg)}}}" for arg in args.split(",") if arg)
        found[_plain(result)].append(f"{{{_plain(target)}}}.{name}({holes})" if is_member else f"{head}({holes})")
    return found


def _plain(kind: str) -> str:
    kind = kind.replace("list<~T>", "list<int>").replace("~T", "int")
    return "dyn" if kind.startswith(("optional_type", "map")) else kind


KNOWN = _known_templates()
#: What ends an expression that is deep enough.
LEAVES = {kind: [one for one in found if _HOLE.search(one) is None] or ["x"] for kind, found in KNOWN.items()}


def expression_of(seed: int) -> str:
    rng = random.Random(seed)

    def of(kind: str, depth: int) -> str:
        known = LEAVES if depth <= 0 else KNOWN
        template = rng.choice(known.get(kind) or KNOWN["dyn"])
        return _HOLE.sub(lambda hole: of(hole[1], depth - 1), template).replace("{{", "{").replace("}}", "}")

    kind = rng.choice(sorted(KNOWN))
    return of(kind, rng.randint(1, 6))


@contextmanager
def _little_memory() -> Iterator[None]:
    """Let the process have so much more memory than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _check(seed: int) -> str:
    """Evaluate one expression; how it ended."""
    expression = expression_of(seed)
    about = f"seed {seed}: {expression}"
    started = time.process_time()
    text = ""
    try:
        evaluation = Program(ENVIRONMENT.compile(expression)).begin(VARIABLES, cost_limit=COST_LIMIT)
        evaluation.result()
    except CompilationError:
        outcome = "compilation error"
    except EvaluationError as error:
        text = str(error)
        outcome = "cancelled" if "cancelled" in text else "error"
    except Exception as error:
        raise AssertionError(f"{about}\n{error!r}") from error
    else:
        outcome = "value"
        assert evaluation.total <= COST_LIMIT, about
    assert "internal error" not in text, f"{about}\n{text}"
    assert len(text) < 2_000, about
    assert time.process_time() - started < CPU_SECONDS, about
    return outcome


def _seeds() -> Iterator[int]:
    if not SECONDS:
        yield from range(SEEDS)
        return
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield random.getrandbits(48)


@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is limited on Linux only")
def test_random_expressions_end_within_their_limits() -> None:
    outcomes: dict[str, int] = defaultdict(int)
    with _little_memory():
        for seed in _seeds():
            outcomes[_check(seed)] += 1
    if SECONDS:
        sys.stderr.write(f"{dict(outcomes)}\n")
    # The generator makes expressions that are evaluated, and all that can become of one.
    assert outcomes.keys() >= {"value", "error", "cancelled", "compilation error"}
    assert outcomes["compilation error"] < 0.7 * sum(outcomes.values())
