"""Every package that is imported is declared: by the base, or by an extra that the import's failure names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/kubesched"
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_EXTRAS: dict[str, list[str]] = _PROJECT["optional-dependencies"]

#: Distributions whose packages have another name.
_PACKAGES = {"cel-expr-python": "cel_expr_python", "protobuf": "google", "pyyaml": "yaml"}
#: Either of two will do, and only pandas is in an extra.
_ALTERNATIVES = {"polars"}
_GUARDS = {"needing", "how_to_install"}


def _declared(lines: list[str]) -> set[str]:
    found: set[str] = set()
    for line in map(Requirement, lines):
        if line.name == "kubesched":
            found |= {package for extra in line.extras for package in _declared(_EXTRAS[extra])}
        else:
            found.add(_PACKAGES.get(line.name.lower(), line.name.replace("-", "_")))
    return found


BASE = _declared(_PROJECT["dependencies"])


def _imported(tree: ast.AST) -> Iterator[str]:
    """Packages of others that a module imports, wherever in it, by a statement or ``import_module``; not for types only."""
    typing: set[int] = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            typing |= {id(inner) for inner in ast.walk(node)}
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        elif isinstance(node, ast.Call) and _name(node.func) == "import_module" and node.args:
            names = [str(value.value) for value in node.args[:1] if isinstance(value, ast.Constant)]
        for name in names:
            package = name.partition(".")[0]
            if package != "kubesched" and package not in sys.stdlib_module_names:
                yield package


def _name(function: ast.expr) -> str:
    """The last part of a function's name."""
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _guarded(tree: ast.AST) -> set[str]:
    """The extras that a module names in a call of a guard."""
    return {
        str(value.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _GUARDS
        for value in node.args
        if isinstance(value, ast.Constant) and value.value in _EXTRAS
    }


def undeclared(source: Path, base: set[str]) -> list[str]:
    """Imports of packages that the base lacks, where neither the module nor its package names an extra that has them."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    named = [path for path, text in texts.items() if any(word in text for word in _GUARDS)]
    guarded = {path: _guarded(ast.parse(texts[path])) for path in named}
    problems = []
    for path, text in texts.items():
        tree = ast.parse(text)
        guards = guarded.get(path, set()) | guarded.get(path.parent / "__init__.py", set())
        reachable = base | {package for extra in guards for package in _declared(_EXTRAS[extra])}
        problems += [f"{path.relative_to(source)}: {name}" for name in sorted(set(_imported(tree)) - reachable)]
    return problems


def test_every_import_is_declared_by_the_base_or_by_the_extra_its_failure_names() -> None:
    assert undeclared(SOURCE, BASE | _ALTERNATIVES) == []


def test_imports_that_are_not_declared_are_found(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text("def f():\n    from aiohttp import web\n    import_module('google.protobuf')\n")
    (tmp_path / "named.py").write_text("with needing('this', 'server'):\n    import aiohttp\n    import ray\n")
    (tmp_path / "fine.py").write_text("import os, numpy\nif TYPE_CHECKING:\n    import cryptography\n")
    assert undeclared(tmp_path, {"numpy"}) == ["lazy.py: aiohttp", "lazy.py: google", "named.py: ray"]


def _without(packages: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command where some packages cannot be imported."""
    code = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split())); from kubesched.cli.main import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, packages, *argv], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("packages", "command", "message"),
    [
        ("aiohttp", "up --nodes 1", "kubesched: the API server of an embedded cluster needs the package aiohttp, "),
        ("httptools", "bench --http", "kubesched: the client of an API server needs the package httptools, "),
        ("kubernetes_asyncio", "import --kubeconfig gone -o x", "kubesched: reading a kubeconfig needs the package "),
        ("aiohttp", "run --config gone.yaml", "kubesched: kubesched run needs the package aiohttp, "),
        ("google cel_expr_python", f"simulate -f {ROOT / 'examples/gpu-dra'}", "cel-expr-python and protobuf, which "),
    ],
)  # fmt: skip
def test_a_missing_package_is_one_line_with_what_to_install(
    packages: str, command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = _without(packages, *command.split())
    assert ran.returncode == 1
    assert message in ran.stderr
    assert re.search(
        r"pip install ('kubesched\[(server|run)\]'|kubesched) \(in a checkout: pip install '?\.", ran.stderr
    )
    assert len(ran.stderr.splitlines()) == 1
