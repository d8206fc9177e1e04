"""Log lines of ``kubesched run``."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from kubesched.cli.run.logs import configure, level_of, with_pairs

LOG = logging.getLogger("kubesched.test.runlogs")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, ours = list(root.handlers), root.level, logging.getLogger("kubesched").level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("kubesched").setLevel(ours)


def test_text_lines_have_klogs_header_message_and_pairs() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    LOG.error("command failed", extra=with_pairs(err='bad "x"', count=3, ok=True))
    pattern = r'E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_run_logs\.py:\d+\] "command failed" err="bad \\"x\\"" count=3 ok=true\n'
    assert re.fullmatch(pattern, stream.getvalue())


def test_multi_line_values_are_indented() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    LOG.info("Using", extra=with_pairs(config="a: 1\nb: 2"))
    assert stream.getvalue().endswith('"Using" config=<\n\ta: 1\n\tb: 2\n >\n')


def test_json_lines_are_objects_with_upstreams_keys() -> None:
    stream = io.StringIO()
    configure(stream=stream, json_lines=True, verbosity=4)
    LOG.log(level_of(4), "detail", extra=with_pairs(pod="ns/p", score=7))
    LOG.error("bad")
    detail, bad = map(json.loads, stream.getvalue().splitlines())
    assert (detail["msg"], detail["v"], detail["pod"], detail["score"]) == ("detail", 4, "ns/p", 7)
    assert re.fullmatch(r"run/test_run_logs\.py:\d+", detail["caller"])
    assert bad["msg"] == "bad"
    assert "v" not in bad
    assert re.match(r'{"ts":\d', stream.getvalue())  # without spaces, as zap writes them


@pytest.mark.parametrize(("verbosity", "shown"), [(0, [0]), (2, [0, 1, 2]), (9, [0, 1, 2, 5])])
def test_verbosity_shows_levels_up_to_it(verbosity: int, shown: list[int]) -> None:
    stream = io.StringIO()
    configure(stream=stream, verbosity=verbosity)
    for level in (0, 1, 2, 5):
        LOG.log(level_of(level), "level %d", level)
    assert [int(line[-2]) for line in stream.getvalue().splitlines()] == shown


def test_vmodule_sets_the_level_of_one_module() -> None:
    stream = io.StringIO()
    configure(stream=stream, vmodule={"test_run_*": 5, "other": 9})
    LOG.log(level_of(5), "here")
    LOG.log(level_of(6), "not here")
    assert stream.getvalue().count("\n") == 1
    assert '"here"' in stream.getvalue()
