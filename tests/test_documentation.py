"""References in the documentation are right: files, headings, and the plugins that are and are not there."""

import inspect
import re
from pathlib import Path

import pytest

from kubesched.api.requests import Resources
from kubesched.scheduler.config import IN_TREE
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import Handle, NodeToStatus, Plugin
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.framework.waiting import WaitingPod, WaitingPods
from kubesched.scheduler.nodes import NodeList, NodeTable, Snapshot
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: `scheduler/plugins/names.py`, `docs/tour.md`: with a folder and a known suffix, and no placeholder.
_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|txt|yaml|toml))`")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SUFFIXES = (".py", ".yaml", ".yml", ".txt", ".tpl", ".json", ".toml", ".ipynb", "")
#: A transcript, the history, and pages about Kubernetes (a folder): names in them need not occur in the project.
_OTHERS_WORDS = {"kubectl-session.md", "CHANGELOG.md", "glossary.md", "rules"}
#: Names that are not this project's: other programs, placeholders, what tables are called at run time.
_OF_OTHERS = {"--build-arg", "--from-file", "ACCOUNT", "IMAGE", "ci", "escalate", "MyPlugin", "O2", "VERB",
              "fastjsonschema", "get_executor", "missingNodes", "mv", "native_class", "nodeCount", "onFailedNodes", "onMissingNodes", "sport", "ss", "wait_p95"}  # fmt: skip


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def dead_references(page: Path) -> list[str]:
    """Links and file names of a page that lead nowhere. Files are named from the root or from ``src/kubesched``."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for name, anchor in _LINK.findall(text):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(f"{name}#{anchor}" if anchor else name)
    # Pages of rules name files of Kubernetes.
    files = _FILE.findall(text) if page.parent.name != "rules" else []
    return dead + [name for name in files if not any((at / name).exists() for at in (ROOT, ROOT / "src/kubesched"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + page.name)
def test_what_a_page_refers_to_exists(page: Path) -> None:
    assert dead_references(page) == []


def unknown_names(page: Path, words: set[str], options: set[str]) -> list[str]:
    """Names and options in backticks that occur nowhere in the project."""
    spans = re.findall(r"`([^`\n]+)`", _FENCED.sub("", page.read_text(encoding="utf-8")))
    names = {name for span in spans for name in re.findall(r"(?<![\w-])[A-Za-z_]\w*", span)} - words
    return sorted(
        names | {name for span in spans for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", span)} - options - words
    )


@pytest.fixture(scope="module")
def project() -> tuple[set[str], set[str]]:
    """Every word of the project's files and every option, documentation apart."""
    folders = ("src", "tests", "deploy", "examples", "bench", ".ci", "ui/src", "ui/dev")
    suffixes = (*_SUFFIXES, ".mjs", ".ts", ".tsx")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "docs" / "dashboard-schema.json"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file() and path != Path(__file__))
    named = {part for path in files for part in path.relative_to(ROOT).with_suffix("").parts}
    words = named | set(re.findall(r"[A-Za-z_]\w*", text))
    return words, {f"--{name}" for name in re.findall(r"[a-z][a-z-]+", text)}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not {page.name, page.parent.name} & _OTHERS_WORDS], ids=lambda page: page.name
)
def test_names_in_a_page_exist(page: Path, project: tuple[set[str], set[str]]) -> None:
    assert set(unknown_names(page, *project)) <= _OF_OTHERS


def test_names_that_exist_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`known(gone_away=1)` `--nodes 3` `--no-such` word\n```\n`hidden`\n```\n")
    assert unknown_names(page, {"known", "nodes"}, {"--nodes"}) == ["--no-such", "gone_away"]


def test_dead_references_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, `really`\n[here](#a-page-really) [gone](other.md) [no heading](#nothing) [web](https://example.com/x)\n"
        "`scheduler/core/cycle.py` `scheduler/no_such_module.py`\n```\n[not a link](nowhere.md)\n```\n"
    )
    assert dead_references(page) == ["other.md", "#nothing", "scheduler/no_such_module.py"]


def test_the_list_of_missing_plugins_is_that_of_the_registry() -> None:
    page = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
    section = page.split("## Not there yet\n")[1].split("\n## ")[0]
    rows = " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    assert {name for name in IN_TREE if name in rows} == IN_TREE.keys() - in_tree_registry().keys()


def test_the_table_for_plugin_authors_names_what_there_is() -> None:
    kinds: tuple[type, ...] = (
        PodInfo, NodeInfo, Resources, NodeList, NodeTable, CycleState, NodeToStatus, Plugin, Handle, Snapshot,
        WaitingPods, WaitingPod, Status,
    )  # fmt: skip
    known = {kind.__name__: kind for kind in kinds}
    section = (ROOT / "docs/plugins.md").read_text(encoding="utf-8").split("## What the arguments offer\n")[1]
    rows = [line.split("|") for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert {row[2].strip(" `") for row in rows} == known.keys()
    for row in rows:
        kind = known[row[2].strip(" `")]
        source = inspect.getsource(kind)
        for name in re.findall(r"`([a-z_]+)(?:\(.*?\))?`", row[3].replace("`pluginConfig`", "")):
            assert hasattr(kind, name) or re.search(rf"self\.{name}\b", source), f"{kind.__name__} has no {name}"
