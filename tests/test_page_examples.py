"""The examples of every page, run as they are printed: commands in ``console`` blocks, and ``python`` blocks.

A page is one session in a folder of its own, which has ``examples`` and ``tests`` and the files of the reader that the page
presupposes (FILES). Output printed below a command, and a value in the comment of an expression, must be what comes out; a
line ``…`` stands for lines that are left out. What
is not run is known by its first word or its page, and that its reason holds is checked.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubesched.cli.main import build_parser, main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples/README.md", ROOT / "bench/README.md"])
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Pages whose examples another test runs, which names the page.
ELSEWHERE = {"kubectl-session.md": "tests/http/test_http_kubectl.py"}
#: Commands that go on until they are stopped, and what they have printed by then. One of each is run, the README's.
LASTING = {"kubesched up": "stop with Ctrl-C"}
#: Commands that need the reader's cluster, and what they report without.
NEEDS = {"kubesched run --config scheduler.yaml": "open scheduler.yaml: no such file or directory"}
#: Commands that take minutes, and the test that does the same work. Their arguments are parsed, and their files exist.
LONG = {
    "kubesched bench": "tests/cli/test_cli_live_bench.py",
    "kubesched up": "tests/cli/test_cli_up.py",
    "kubesched view": "tests/dashboard/test_view_command.py",
    "kubesched kubelets": "tests/cli/test_cli_kubelets.py",
    "kubesched conformance": "tests/test_conformance.py",
    "kubesched sweep examples/policies/config/openb.yaml": "tests/policies/test_openb_table.py",
    "kubesched sweep examples/policies/config/gangs-compared.yaml": "tests/policies/test_gang_table.py",
    "kubesched sweep examples/config/sweep.yaml": "tests/sweeps/test_sweep_files.py",
}
#: Programs that are not run here: they need a cluster, a registry or the network, or run this suite. Files of this project
#: that their lines name must exist.
OTHERS = (
    "cd",
    "cp",
    "curl",
    "export",
    "helm",
    "kube-scheduler",
    "kubectl",
    "kustomize",
    "make",
    "mv",
    "pip",
    "pkill",
    "podman",
    "python",
    "ss",
)

_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
_FOLDERS = ("bench/", "deploy/", "docs/", "examples/", "tests/")
#: A command that stands anywhere but in a block of commands.
_LOOSE = re.compile(r"^(?:    |\$ )?(?:kubesched|kubectl|make) [a-z-]+(?: |$)")

_OLD = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n"
_TASKS = "job,task,1.0,Terminated,0.0,60.0,600.0,1.0,100.0,T4\n" * 3
_PHILLY = """[{"status": "Pass", "vc": "v", "jobid": "application_1_1", "submitted_time": "2017-10-03 00:00:00", "user": "u",
 "attempts": [{"start_time": "2017-10-03 00:01:00", "end_time": "2017-10-03 01:00:00",
               "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}]"""
_OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,V100M16\n"
_OPENB_PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,4000,16384,1,500,,LS,Running,0,100,0\n"
)

#: What readers have: a text, or a path of the project.
FILES: dict[str, dict[str, str | Path]] = {
    "configuration.md": {"old.yaml": _OLD, "manifests": ROOT / "examples/gpu-dra"},
    "simulate.md": {"nodes.yaml": ROOT / "examples/nodes/nodes.yaml"},
    "sweeps.md": {"packing.yaml": ROOT / "examples/config/packing.yaml", "workload.yaml": _POD},
    "traces.md": {
        "pai_task_table.csv": _TASKS,
        "cluster_job_log": _PHILLY,
        "openb/openb_node_list_all_node.csv": _OPENB_NODES,
        "openb/openb_pod_list_default.csv": _OPENB_PODS,
    },
}
#: Blocks of a page that a reader would save, by language and number.
SAVED = {
    "pod-groups.md": {"gang.yaml": ("yaml", 0)},
    "simulate.md": {"pods.csv": ("csv", 0)},
    "plugins.md": {"my_plugin.py": ("python", 0), "my_config.yaml": ("yaml", 0)},
}


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, without comments, each with the lines printed below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((re.split(r"\s+# ", line.removeprefix("$ "))[0].strip(), []))
        else:
            found[-1][1].append(line)
    yield from found


def problems_of_other(line: str) -> list[str]:
    """Return the problems of a command that is not run: targets, extras and files that do not exist."""
    words = shlex.split(line)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return [word for word in words[1:] if word not in targets and not re.fullmatch(r"[A-Z]+=.*", word)]
    if words[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        given = re.findall(r"\[(.*?)\]", line)
        return [name for group in given for name in group.split(",") if name not in extras]
    return missing_files(words)


def missing_files(words: list[str]) -> list[str]:
    """Files of this project that a command names, and that do not exist."""
    return [word for word in words if word.startswith(_FOLDERS) and not (ROOT / word).exists()]


def prepare(page: Path, folder: Path) -> None:
    (folder / "tests").symlink_to(ROOT / "tests")
    if "$ kubesched examples" not in page.read_text(encoding="utf-8"):  # that makes them
        (folder / "examples").symlink_to(ROOT / "examples")
    for name, content in FILES.get(page.name, {}).items():
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        if isinstance(content, Path):
            target.symlink_to(content)
        else:
            target.write_text(content)
    text = page.read_text(encoding="utf-8")
    for name, (language, number) in SAVED.get(page.name, {}).items():
        found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(found[number])


def run_until(argv: list[str], text: str, code: int) -> None:
    """A command as a process: it shows a text and ends with this code; with 0 after it was stopped."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "kubesched.cli", *argv],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert any(text in line for line in process.stdout)
        if not code:
            process.terminate()
        assert "Traceback" not in process.stdout.read()
    assert process.returncode == code


def shows(expected: list[str], printed: list[str]) -> bool:
    """Return True if the lines were printed; a line ``…`` stands for any lines, as many as there are."""
    if "…" not in expected:
        return printed == expected
    cut = expected.index("…")
    head, rest = expected[:cut], expected[cut + 1 :]
    if printed[:cut] != head:
        return False
    return any(shows(rest, printed[start:]) for start in range(cut, len(printed) + 1))


def run_command(line: str, expected: list[str], patch: pytest.MonkeyPatch, *, lasting: bool = False) -> None:
    """A command of kubesched, in this process; one that goes on, if that is wanted, as a process."""
    words = shlex.split(re.sub(r"\$\(.*?\)", "1", line))
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        assert name == "PYTHONPATH"
        patch.syspath_prepend(value)
    assert words.pop(0) == "kubesched"
    plain = f"kubesched {shlex.join(words)}"
    for known, code in ((LASTING if lasting else {}, 0), (NEEDS, 1)):
        for start, shown in known.items():
            if plain.startswith(start):
                return run_until(words, shown, code)
    test = next((test for start, test in LONG.items() if plain.startswith(start)), None)
    if test is not None:
        build_parser().parse_args(words)
        assert (ROOT / test).exists()
        assert missing_files(words) == []
        return None
    target = next((word[1:] for word in words if word.startswith(">")), None)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([word for word in words if not word.startswith(">")])
    assert (code, "Traceback" in err.getvalue()) == (0, False), f"{line}: {err.getvalue()}"
    if target is not None:
        Path(target).write_text(out.getvalue())
    if expected:
        assert shows(expected, out.getvalue().splitlines()), line
    return None


async def run_python(block: str, names: dict[str, Any]) -> None:
    """A block, in the names that earlier ones have left; ``await`` is as in a notebook.

    ``expression  # literal`` on a line of its own must have that value.
    """
    lines = textwrap.dedent(block).splitlines()
    for statement in ast.parse("\n".join(lines)).body:
        made = eval(compile(ast.Module([statement], []), "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(made):
            await made
        _, mark, comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")
        if mark and isinstance(statement, ast.Expr):
            with contextlib.suppress(ValueError, SyntaxError):  # prose
                expected = ast.literal_eval(comment)
                assert eval(ast.unparse(statement.value), names) == expected, lines[statement.lineno - 1]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.parent.name + page.name
)
def test_the_examples_of_a_page_work(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[page.name]).read_text(encoding="utf-8")
        return
    prepare(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, block in blocks(page):
        if language == "python":
            asyncio.run(run_python(block, names))
            continue
        for line, expected in commands(block):
            if line.startswith(OTHERS):
                assert problems_of_other(line) == [], line
            else:
                run_command(line, expected, monkeypatch, lasting=page == ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + page.name)
def test_commands_are_in_blocks_of_commands(page: Path) -> None:
    if page.name not in ELSEWHERE:
        assert loose_commands(page.read_text(encoding="utf-8")) == []


def loose_commands(text: str) -> list[str]:
    """Lines with a command where no test would run it: in blocks of another language, and in indented ones."""
    return [line for line in re.sub(_BLOCK, "", text).splitlines() if _LOOSE.match(line) and not line[0].isalpha()] + [
        line
        for block in re.findall(r"^```(?!console|python).*?^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()[1:]
        if _LOOSE.match(line)
    ]


def test_what_does_not_work_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    asyncio.run(run_python("x = [1, 'two']\nx[1]  # 'two'\nx[0]  # prose, 1 of 2\n", names))
    with pytest.raises(AssertionError):
        asyncio.run(run_python("x[0]  # 2\n", names))
    with pytest.raises(NameError):
        asyncio.run(run_python("gone\n", names))
    with pytest.raises(AssertionError):
        run_command("kubesched simulate -f gone.yaml", [], monkeypatch)
    with pytest.raises(AssertionError):
        run_command("kubesched version", ["nothing"], monkeypatch)
    assert problems_of_other("make tset") == ["tset"]
    assert problems_of_other("pip install 'kubesched[rnu]'") == ["rnu"]
    assert problems_of_other("kubectl apply -k deploy/gone") == ["deploy/gone"]
    assert loose_commands(
        "kubesched is a text\n    kubesched up now\n```\nmake test\n```\n```console\n$ make it\n```"
    ) == [
        "    kubesched up now",
        "make test",
    ]
    assert [*commands("$ a  # b\n1\n2\n$ c \\\n  d\n")] == [("a", ["1", "2"]), ("c    d", [])]
