"""The generated reference pages: current, complete, and equal to Kubernetes 1.36's table of gates."""

from __future__ import annotations

import re
from pathlib import Path
from types import FunctionType

import msgspec
import pytest

import kubesched
from kubesched import testing
from kubesched.cli.reference import configuration_types, main, pages
from kubesched.cli.reference_code import markdown_of
from kubesched.cli.reference_texts import FIELDS, GATES
from kubesched.cli.run.flags import FLAG_SET
from kubesched.scheduler.config.features import FEATURES
from kubesched.scheduler.framework import Contract, Handle, Question
from kubesched.scheduler.framework.gated_fields import POD_FIELD_GATES

_METHODS = (FunctionType, property, staticmethod, classmethod)
ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", pages())
def test_the_page_in_docs_is_what_the_tables_say(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert text == pages()[name], "run: make reference"


def test_every_field_of_the_configuration_has_a_meaning_and_no_other_name_has() -> None:
    fields = {
        type_.__name__: {field.encode_name for field in msgspec.structs.fields(type_)}
        for type_ in configuration_types()
    }
    assert {name: set(texts) for name, texts in FIELDS.items()} == fields


def test_every_gate_that_the_source_reads_has_an_effect_and_no_other_has() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src" / "kubesched").rglob("*.py"))
    asked = set(re.findall(r"""(?:enabled|\bgate)\(\s*"(\w+)\"""", sources))
    asked |= set(re.findall(r""""(\w+)" (?:not )?in (?:\w+\.)*features\b""", sources))  # those of the embedded cluster
    assert asked | POD_FIELD_GATES.keys() == set(GATES)


def test_every_flag_and_gate_is_on_its_page() -> None:
    written = pages()
    flags = re.findall(r"^\| (?:`-\w`, )?`--([\w-]+)`", written["flags.md"], re.MULTILINE)
    assert sorted(flags) == sorted(flag.name for flag in FLAG_SET.flags)
    assert re.findall(r"^\| `(\w+)`", written["feature-gates.md"], re.MULTILINE) == list(FEATURES)


@pytest.mark.parametrize("kind", [Contract, Question, Handle])
def test_every_method_of_the_plugin_contract_is_on_its_page_with_its_signature(kind: type) -> None:
    page = pages()["plugin-contract.md"]
    methods = [name for name, value in vars(kind).items() if not name.startswith("_") and isinstance(value, _METHODS)]
    found = re.findall(rf"^### `{kind.__name__}\.(\w+)`\n\n```py\n(?:@\w+\n)?def (\w+)\(", page, re.MULTILINE)
    assert found == [(name, name) for name in methods]
    assert len(methods) > 10


def test_what_kubesched_exports_is_on_the_python_page() -> None:
    page = pages()["python-reference.md"] + pages()["plugin-contract.md"]
    assert {name for name in (*kubesched.__all__, *testing.__all__) if f"\n## `{name}`\n" not in page} == {
        "__version__"
    }


def test_a_docstring_becomes_markdown() -> None:
    def documented() -> None:
        """Count ``x`` as :meth:`~a.b.C.count` does.

            first = 1

        Args:
            x: the first,
                and more.
            y, z: the others.

        * a list
          stays.
        """

    def short() -> None:
        """Raises:
        ValueError: when it is bad.
        """

    assert markdown_of(documented) == (
        "Count `x` as `count` does.\n\n```py\nfirst = 1\n```\n\nArgs:\n\n* `x`: the first,\n  and more.\n"
        "* `y`, `z`: the others.\n\n* a list\n  stays."
    )
    assert markdown_of(short) == "Raises:\n\n* `ValueError`: when it is bad."


def test_the_feature_gates_have_stage_default_and_release_of_kubernetes() -> None:
    expected: dict[str, tuple[str, str, str]] = {}
    row = ("", "", "")
    for line in (HERE / "feature_gates.txt").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[0] in ("GA", "BETA", "ALPHA"):
            row = (words[0], words[1], words[2].strip("-"))
        elif words[0] != "#":
            expected.update(dict.fromkeys(words, row))
    ours = {
        gate.name: (gate.stage.value, "locked" if gate.locked else "on" if gate.default else "off", gate.since)
        for gate in FEATURES.values()
    }
    assert ours == expected


def test_the_command_writes_the_pages_and_refuses_what_is_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == pages()
    assert main([str(tmp_path / "nowhere")]) == 2
    assert main([]) == 2
    assert "usage: python -m kubesched.cli.reference DIRECTORY" in capsys.readouterr().err
