"""Refusals of the registry, and their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_kit import make_plugin, say

from kubesched.scheduler.framework import registry as registry_module
from kubesched.scheduler.framework.points import POINTS, capabilities
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.registry import PluginError, Registry, check_plugin
from kubesched.scheduler.plugins import in_tree_registry


async def later(self: Any, *args: Any) -> None:
    return None


class NoName:
    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


class TooFew:
    name = "TooFew"

    def filter(self, state: Any, pod: Any) -> None:
        return None


class TooMany:
    name = "TooMany"

    def score(self, state: Any, pod: Any, node: Any, weight: int) -> int:
        return weight


class KeywordOnly:
    name = "KeywordOnly"

    def filter(self, state: Any, pod: Any, *, node: Any) -> None:
        return None


class Static:
    name = "Static"

    @staticmethod
    def filter(state: Any, pod: Any, node: Any) -> None:
        return None

    @classmethod
    def sign(cls, pod: Any) -> str:
        return pod.name  # type: ignore[no-any-return]


class BadStatic:
    name = "BadStatic"

    @staticmethod
    def filter(own: Any, state: Any, pod: Any, node: Any) -> None:
        return None


class Generous:
    name = "Generous"

    def filter(self, *args: Any) -> None:
        return None

    def score(self, state: Any, pod: Any, node: Any, extra: int = 0) -> int:
        return extra


class AsksForMore:
    name = "AsksForMore"

    def __init__(self, args: Any, handle: Any, address: str) -> None:
        self.address = address

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


def asking(**members: Any) -> type:
    """A plugin whose question class, Asked, has these members; those of no question are the plugin's own."""
    own = {name: member for name, member in members.items() if name == "unreserve"}
    question = type("Asked", (Question,), {name: each for name, each in members.items() if name not in own})
    return make_plugin("Asking", asks=question, ask=say(None), **own)


REFUSED: list[tuple[str, type, list[str]]] = [
    ("no name", NoName, ["NoName has no name: set the class attribute name = '…'"]),
    ("an empty name", make_plugin("", filter=say(None)), ["has no name"]),
    ("a name that is no text", type("Odd", (), {"name": 3, "filter": say(None)}), ["Odd has no name"]),
    ("no extension point", make_plugin("Idle"), ['plugin "Idle"', "extends no extension point: define at least one of pre_filter, filter"]),
    ("too few arguments", TooFew, ['plugin "TooFew"', "does not fit the interface:\n", "  it has    filter(self, state: Any, pod: Any) -> None\n", "  expected  filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None"]),
    ("too many arguments", TooMany, ["  it has    score(self, state: Any, pod: Any, node: Any, weight: int) -> int\n", "  expected  score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int | Status"]),
    ("a constructor with another argument", AsksForMore, ['plugin "AsksForMore"', "does not fit the interface:\n", "  it has    __init__(self, args: Any, handle: Any, address: str) -> None\n", "  expected  __init__(self, args: "]),
    ("keyword arguments", KeywordOnly, ["  it has    filter(self, state: Any, pod: Any, *, node: Any) -> None\n"]),
    ("a static method with one more argument", BadStatic, ["  it has    filter(own: Any, state: Any, pod: Any, node: Any) -> None\n"]),
    ("an attribute for a method", make_plugin("Attribute", filter=3), ['plugin "Attribute"', "filter is not a method"]),
    ("async in the scheduling cycle", make_plugin("Async", reserve=later), ["reserve is async, but the scheduling cycle does not wait; only post_filter, pre_bind, bind may be async"]),
    ("verdicts without meaning", asking(verdicts=say(None)), ["its question Asked defines verdicts but not why(self, verdict: int) -> Status"]),
    ("a meaning without verdicts", asking(scores=say(None), why=say(None)), ["defines why but not verdicts(self, rows: RowArray) -> VerdictArray"]),
    ("rows named for no scores", asking(verdicts=say(None), why=say(None), rescored=lambda self, *, same: None), ["defines rescored but not scores("]),
    ("a question that answers nothing", asking(), ["its question Asked answers nothing: define verdicts and why to filter"]),
    ("a misspelt part of a question", asking(verdicts=say(None), why=say(None), is_locale=False), ["defines is_locale, which is not part of the interface; did you mean is_local?"]),
    ("a part of a question with other arguments", asking(verdicts=say(None), why=lambda: None), ["its question Asked does not fit the interface", "expected  why(self, verdict: int) -> Status"]),
    ("a class of questions that is none", make_plugin("Odd", ask=say(None), asks=int), ["asks is <class 'int'>; expected a class derived from kubesched.scheduler.framework.Question"]),
    ("reads of another type", asking(verdicts=say(None), why=say(None), reads=True), ["its question Asked: reads is True; expected Reads.NODE, Reads.PODS, or both with |"]),
    ("a normalisation that is a text", asking(scores=say(None), normalize="reverse"), ["normalize is 'reverse'; expected Normalize.FORWARD, Normalize.REVERSE or None"]),
    ("a flag that is a text", asking(scores=say(None), by_spec="yes"), ["by_spec is 'yes'; expected True or False"]),
    ("a key that is a method", asking(scores=say(None), key=lambda self: 1), ["key is a method; expected an attribute, such as self.key = … in __init__"]),
    ("a what-if without a pre_filter", asking(verdicts=say(None), why=say(None), assuming=say(None)), ["defines assuming but not pre_filter("]),
    ("a filter beside verdicts", make_plugin("Both", asks=vars(asking(verdicts=say(None), why=say(None)))["asks"], ask=say(None), filter=say(None)), ["defines filter, which is never called: verdicts of its question Asked answers"]),
    ("ask without asks", make_plugin("Half", ask=say(None), filter=say(None)), ["defines ask but not asks"]),
    ("a part of questions in a plugin", make_plugin("Flat", filter=say(None), reads=1), ["defines reads, which belongs to its questions"]),
    ("half of a what-if", make_plugin("Adds", pre_filter=say(None), add_pod=say(None)), ["defines add_pod but not remove_pod("]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "plugin", "texts"), REFUSED)
def test_refused(name: str, plugin: type, texts: list[str]) -> None:
    registry = Registry()
    with pytest.raises(PluginError) as caught:
        registry.register(plugin)
    for text in texts:
        assert text in str(caught.value), name
    assert len(registry) == 0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("normalise_score", "normalize_score"),
        ("preFilter", "pre_filter"),
        ("Filter", "filter"),
        ("prescore", "pre_score"),
        ("post_filer", "post_filter"),
        ("unreserved", "unreserve"),
        ("events_to_registers", "events_to_register"),
        ("scores", "score"),
        ("demand", "demands"),
        ("inform", "informs"),
        ("normalise", "normalize"),
    ],
)
def test_a_name_that_is_nearly_one_of_the_interface_is_refused(written: str, meant: str) -> None:
    other = "reserve" if meant != "reserve" else "permit"
    plugin = make_plugin("Slip", **{written: say(None), other: say(None)})
    with pytest.raises(
        PluginError, match=rf"defines {written}, which is not part .* did you mean {meant}\?.*_{written}"
    ):
        check_plugin(plugin)
    inherits = type("Inherits", (plugin,), {"name": "Inherits"})
    with pytest.raises(PluginError, match=f"did you mean {meant}"):
        check_plugin(inherits)


def test_helpers_of_other_names_are_no_slips() -> None:
    helpers = {name: say(None) for name in ("scores", "_filter", "score_of", "fits", "find_node", "free", "reserved")}
    check_plugin(make_plugin("Helped", score=say(1), reserve=say(None), **helpers))


@pytest.mark.parametrize(
    "plugin",
    [Static, Generous, make_plugin("AsyncBind", bind=later, pre_bind=later), asking(scores=lambda self, rows: rows), *in_tree_registry().values()],
    ids=lambda plugin: plugin.__name__,
)  # fmt: skip
def test_accepted(plugin: type) -> None:
    check_plugin(plugin)
    registry = Registry()
    assert registry.register(plugin) is plugin
    assert list(registry) == [plugin.name]  # type: ignore[attr-defined]


def test_every_async_method_but_three_is_refused() -> None:
    methods = [method for point in POINTS for method in point.methods]
    for method in methods:
        plugin = make_plugin(
            "Async", **{method: later, **({"verdict_status": say(None)} if method == "filter_rows" else {})}
        )
        if method in ("bind", "pre_bind", "post_filter"):
            check_plugin(plugin)
        else:
            with pytest.raises(PluginError, match=f"{method} is async"):
                check_plugin(plugin)


def test_names_are_unique() -> None:
    registry = in_tree_registry()
    with pytest.raises(PluginError, match=r"^a plugin named NodeName already exists$"):
        registry.register(make_plugin("NodeName", filter=say(None)))
    registry.unregister("NodeName")
    assert "NodeName" not in registry
    with pytest.raises(PluginError, match=r"^no plugin named NodeName exists$"):
        registry.unregister("NodeName")
    mine = registry.register(make_plugin("NodeName", filter=say(None)))
    assert registry["NodeName"] is mine


def test_a_copy_is_independent() -> None:
    registry = in_tree_registry()
    twin = registry.copy()
    twin.unregister("NodeName")
    assert "NodeName" in registry
    assert twin.capabilities().keys() == registry.capabilities().keys() - {"NodeName"}


def test_capabilities_are_the_points_a_class_extends() -> None:
    asked = asking(verdicts=say(None), why=say(None), unreserve=say(None))
    assert capabilities(asked) == {"filter", "reserve"}
    fit = in_tree_registry().capabilities()["NodeResourcesFit"]
    assert fit == {"preFilter", "filter", "preScore", "score", "placementScore"}


# -- modules and entry points ------------------------------------------------------------------------------

PLUGIN = """
from kubesched.scheduler.framework.interface import Plugin

class {name}(Plugin):
    name = "{name}"

    def filter(self, state, pod, node):
        return None

class Helper:
    pass
"""


def test_the_plugins_of_a_file_are_registered(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(name="FromFile"))
    registry = Registry()
    found = registry.load_module(str(path))
    assert [plugin.__name__ for plugin in found] == ["FromFile"] == list(registry)


def test_the_plugins_of_a_module_are_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubesched_test_module.py").write_text(PLUGIN.format(name="FromModule"))
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    registry.load_module("kubesched_test_module")
    assert list(registry) == ["FromModule"]
    with pytest.raises(PluginError, match="a plugin named FromModule already exists"):
        registry.load_module("kubesched_test_module")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.py", "import nothing_of_that_name", r"broken\.py cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("syntax.py", "def", r"syntax\.py cannot be imported: SyntaxError"),
        ("empty.py", "x = 1", r"empty\.py defines no plugin: a plugin is a class with a name attribute"),
        ("misfit.py", 'class Misfit:\n    name = "Misfit"\n', r'plugin "Misfit".*extends no extension point'),
    ],
)  # fmt: skip
def test_a_file_without_a_usable_plugin_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PluginError, match=message):
        Registry().load_module(str(tmp_path / name))


def test_a_file_or_module_that_is_not_there_is_named() -> None:
    with pytest.raises(PluginError, match=r"^plugin module gone\.py: no such file$"):
        Registry().load_module("gone.py")
    with pytest.raises(PluginError, match=r"^plugin module gone\.mod cannot be imported: ModuleNotFoundError"):
        Registry().load_module("gone.mod")


class FakeEntry:
    value = "some.module:Thing"

    def __init__(self, name: str, answer: Any) -> None:
        self.name = name
        self._answer = answer

    def load(self) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[FakeEntry]:
    entries: list[FakeEntry] = []

    def entry_points(*, group: str) -> list[FakeEntry]:
        assert group == "kubesched.scheduler.plugins"
        return entries

    monkeypatch.setattr(registry_module, "entry_points", entry_points)
    return entries


def test_installed_packages_bring_plugins(installed: list[FakeEntry]) -> None:
    installed += [FakeEntry("a", make_plugin("A", filter=say(None))), FakeEntry("b", make_plugin("B", score=say(1)))]
    registry = Registry()
    registry.load_entry_points()
    assert list(registry) == ["A", "B"]


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (ImportError("no numpy"), "ImportError: no numpy"),
        (SystemExit(3), "SystemExit: 3"),
        (TooFew, "does not fit the interface"),
        (make_plugin("A", score=say(1)), "a plugin named A already exists"),
        ("text", "it is 'text'; expected a plugin class"),
    ],
    ids=lambda item: item if isinstance(item, str) and " " in item else "",
)
def test_a_broken_entry_point_harms_only_itself(installed: list[FakeEntry], offered: Any, problem: str) -> None:
    installed += [
        FakeEntry("first", make_plugin("A", filter=say(None))),
        FakeEntry("mine", offered),
        FakeEntry("last", make_plugin("B", filter=say(None))),
    ]
    registry = Registry()
    registry.load_entry_points()
    assert list(registry) == ["A", "B"]
    [text] = registry.copy().problems
    assert text.startswith("entry point mine = some.module:Thing is left out: ")
    assert problem in text


def test_an_entry_point_that_is_no_place_of_a_class_is_said_so(installed: list[FakeEntry]) -> None:
    entry = FakeEntry("empty", TooFew)
    entry.value = ""
    installed.append(entry)
    registry = Registry()
    registry.load_entry_points()
    assert registry.problems == ["entry point empty =  is left out: expected package.module:Class"]


class FakePackage:
    """An installed package, or one whose own metadata cannot be read."""

    def __init__(self, name: str, offered: list[FakeEntry] | Exception) -> None:
        self.metadata = {"Name": name}
        self._offered = offered

    @property
    def entry_points(self) -> FakePackage:
        if isinstance(self._offered, Exception):
            raise self._offered
        return self

    def select(self, *, group: str) -> list[FakeEntry]:
        assert group == "kubesched.scheduler.plugins"
        assert not isinstance(self._offered, Exception)
        return self._offered


def test_a_package_with_broken_metadata_harms_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str) -> list[FakeEntry]:
        raise ValueError("not a group")

    packages = [
        FakePackage("first", [FakeEntry("a", make_plugin("A", filter=say(None)))]),
        FakePackage("broken", ValueError("not a group")),
        FakePackage("", ValueError("no name either")),
        FakePackage("first", [FakeEntry("older", make_plugin("Older", filter=say(None)))]),
        FakePackage("last", [FakeEntry("b", make_plugin("B", filter=say(None)))]),
    ]
    monkeypatch.setattr(registry_module, "entry_points", entry_points)
    monkeypatch.setattr(registry_module, "distributions", lambda: packages)
    registry = Registry()
    registry.load_entry_points()
    assert list(registry) == ["A", "B"]
    assert registry.problems == [
        "entry points of package broken cannot be read: ValueError: not a group",
        "entry points of a package without a name cannot be read: ValueError: no name either",
    ]
