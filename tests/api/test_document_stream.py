"""Reading goes on behind a document that cannot be read, with the lines and numbers of the others unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.document_stream import readable_documents
from kubesched.api.documents import TextError

#: Documents, each with what is said about it, if anything.
GOOD = ("a: 1\n", "# a comment\n\nb: [1, 2]\n", "- x\n- y\n", "c: |\n  -- text\n", "é: ü\n", "")
BAD = {
    "a: {b\n": "did not find expected ',' or '}'",
    "a: 'b\n": "found unexpected document indicator",
    "\tb: c\n": "found character that cannot start any token",
    "a: 1\na: 2\n": "key 'a' is given twice",
    "a: *b\n": "unknown anchor 'b' referenced",
    "a: b\x01c\n": "control characters are not allowed",
    "{{ .Values.x }}\n": "invalid map key",
}


@given(st.lists(st.sampled_from((*GOOD, *BAD)), min_size=1, max_size=8))
def test_each_document_is_read_or_reported_whatever_the_others_are(parts: list[str]) -> None:
    text = "".join(f"---\n{part}" for part in (*parts, "z: 0\n"))
    problems: list[TextError] = []
    found = list(readable_documents(text, "f.yaml", problems))
    starts = [text[: sum(len(part) + 4 for part in parts[:index])].count("\n") + 1 for index in range(len(parts))]
    read = {document.number: document for document in found if document.data is not None}
    assert sorted(read) == [i for i, part in enumerate((*parts, "z: 0\n"), 1) if part not in BAD and part]
    assert all(document.start == starts[number - 1] for number, document in read.items() if number <= len(parts))
    said = [next(text for text in BAD.values() if problem.problem.startswith(text)) for problem in problems]
    assert sorted(said) == sorted(BAD[part] for part in parts if part in BAD)
    # Where the document is not numbered, the line is the one of the character.
    for problem in problems:
        place = problem.document or sum(start <= problem.line for start in starts)
        assert parts[place - 1] in BAD


def test_after_very_many_bad_documents_the_rest_is_not_read_and_that_is_said() -> None:
    problems: list[TextError] = []
    assert list(readable_documents("a: {\n---\n" * 1000, "f.yaml", problems)) == []
    assert len(problems) == 51
    assert problems[-1].in_file("f.yaml") == "f.yaml: too many documents are not valid; the rest is not read"


@pytest.mark.parametrize(
    ("raw", "name", "message"),
    [
        (b"a: \xff", "f.yaml", "f.yaml: document 1: invalid UTF-8 text at byte 3"),
        ("{", "f.json", "f.json: not valid JSON: "),
        ('{"a": 1, "a": 2}', "f.json", "f.json: key 'a' is given twice; keep one of them"),
        ("a: \ud800", "f.yaml", "f.yaml: document 1: not valid YAML: "),
        ("a: 1\n\nb: \x00", "f.yaml", "f.yaml: line 3: not valid YAML: control characters are not allowed"),
    ],
)
def test_what_cannot_be_split_into_documents_is_one_problem(raw: str | bytes, name: str, message: str) -> None:
    problems: list[TextError] = []
    assert [one for one in readable_documents(raw, name, problems) if one.data is not None] == []
    assert [one.in_file(name)[: len(message)] for one in problems] == [message]
