"""Registry of plugin classes by name: in-tree plugins, entry points, and modules given on the command line.

It refuses a plugin that does not fit the interface and shows both signatures. So a mistake is seen at start-up and not
in the first scheduling cycle.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from types import NoneType
from typing import Any, Final

from .interface import Contract, Handle, Plugin
from .near_misses import near_miss
from .placements import GroupContract
from .points import POINTS, capabilities
from .question import Normalize, Question, Reads, defines

__all__ = ["ENTRY_POINT_GROUP", "PluginError", "PluginFactory", "Registry", "check_plugin", "load_module"]

#: Entry-point group in which installed packages name their plugin classes.
ENTRY_POINT_GROUP: Final = "kubesched.scheduler.plugins"

PluginFactory = Callable[[Any, Handle], Any]

_METHODS: Final = {
    name: member
    for contract in (Contract, GroupContract)
    for name, member in vars(contract).items()
    if inspect.isfunction(member) and not name.startswith("_")
}

#: Methods whose answer may be awaited.
_MAY_BE_ASYNC: Final = ("post_filter", "pre_bind", "bind")
#: Class attributes of a plugin that belong to the interface.
_ATTRIBUTES: Final = ("asks", "informs", "normalize")
#: Public names of a question: methods, and attributes with their defaults.
_QUESTION: Final = {name: getattr(Question, name) for name in vars(Question) if not name.startswith("_")}
#: Names that belong to questions: in a plugin class they are a mistake, not the name of a helper.
_ASKED_NAMES: Final = frozenset(
    {"by_spec", "is_local", "may_fail", "normalized", "reads", "stands_alone", "throughout", "verdicts"}
)
#: Class attribute of a question to (its allowed values in words, its allowed types).
_ATTRIBUTE_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "reads": ("Reads.NODE, Reads.PODS, or both with |", (Reads,)),
    "normalize": ("Normalize.FORWARD, Normalize.REVERSE or None", (Normalize, NoneType)),
    **dict.fromkeys(("by_spec", "is_local", "may_fail", "throughout"), ("True or False", (bool,))),
}
#: Method of a plugin to the method of its question that is called instead, if the question defines it.
_ANSWERED: Final = {"pre_filter": "pre_filter", "filter": "verdicts", "pre_score": "pre_score", "score": "scores"}
#: Method to another method that must be defined with it.
_NEEDED: Final = {"add_pod": "remove_pod", "remove_pod": "add_pod", "sort_key": "less"}
_NEEDED_OF_QUESTIONS: Final = {
    "verdicts": "why",
    "why": "verdicts",
    "verdict": "verdicts",
    "amounts": "verdicts",
    "changed": "verdicts",
    "assuming": "pre_filter",
    "score": "scores",
    "normalized": "scores",
    "rescored": "scores",
}


class PluginError(Exception):
    """A plugin cannot be registered or built. The message names it, the reason, and what would be right."""


def _takes_two(plugin: type) -> bool:
    """Return False if the class has a constructor that cannot be called with args and handle."""
    if plugin.__init__ is object.__init__:  # type: ignore[misc]
        return True
    try:
        inspect.signature(plugin).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def check_plugin(plugin: type) -> None:
    """Refuse a class that does not fit :class:`~kubesched.scheduler.framework.interface.Contract`.

    Raises:
        PluginError: with the plugin's signature and the one expected.
    """
    name = getattr(plugin, "name", "")
    where = f"{plugin.__module__}.{plugin.__qualname__}"
    if not isinstance(name, str) or not name:
        raise PluginError(f"plugin class {where} has no name: set the class attribute name = '…'")
    who = f'plugin "{name}" ({where})'
    for asked in sorted(_ASKED_NAMES):
        if hasattr(plugin, asked):
            raise PluginError(
                f"{who} defines {asked}, which belongs to its questions: derive a class from kubesched.scheduler.framework.Question, "
                f"name it in asks, and return one from ask{_signature(_METHODS['ask'])}"
            )
    _refuse_near_miss(who, plugin, (*_METHODS, *_ATTRIBUTES), Plugin)
    asks: Any = getattr(plugin, "asks", None)
    if hasattr(plugin, "ask") != (asks is not None):
        given, lacking = ("ask", "asks") if asks is None else ("asks", "ask")
        raise PluginError(f"{who} defines {given} but not {lacking}: asks names the class of what ask returns")
    if asks is not None:
        check_question(asks, who)
        for method, asked in _ANSWERED.items():
            if hasattr(plugin, method) and defines(asks, asked):
                raise PluginError(
                    f"{who} defines {method}, which is never called: {asked} of its question {asks.__qualname__} answers"
                )
    if not capabilities(plugin):
        methods = ", ".join(method for point in POINTS for method in point.methods)
        raise PluginError(f"{who} extends no extension point: define at least one of {methods}, or ask")
    _check_methods(who, plugin, _METHODS)
    if not _takes_two(plugin):
        raise PluginError(
            f"{who} does not fit the interface:\n"
            f"  it has    __init__{_signature(inspect.getattr_static(plugin, '__init__'))}\n"
            f"  expected  __init__{_signature(Plugin.__init__)}"
        )
    _refuse_partial(who, {method for method in _METHODS if hasattr(plugin, method)}, _NEEDED, _METHODS)


def check_question(asks: Any, who: str) -> None:
    """Refuse a class of questions that does not fit :class:`~kubesched.scheduler.framework.question.Question`.

    Raises:
        PluginError: names the plugin as ``who``.
    """
    if not (inspect.isclass(asks) and issubclass(asks, Question) and asks is not Question):
        raise PluginError(
            f"{who}: asks is {asks!r}; expected a class derived from kubesched.scheduler.framework.Question"
        )
    who = f"{who}: its question {asks.__qualname__}"
    _refuse_near_miss(who, asks, _QUESTION, Question)
    _check_methods(who, asks, {name: each for name, each in _QUESTION.items() if inspect.isfunction(each)})
    _check_attributes(who, asks)
    own = {name for name in _QUESTION if inspect.isfunction(_QUESTION[name]) and defines(asks, name)}
    if not own & {"pre_filter", "verdicts", "scores"}:
        raise PluginError(f"{who} answers nothing: define verdicts and why to filter, scores to score, or pre_filter")
    _refuse_partial(who, own, _NEEDED_OF_QUESTIONS, _QUESTION)


def _check_attributes(who: str, asks: Any) -> None:
    """Refuse class attributes of a question with the wrong type: they would be read as if they were right."""
    for name, (expected, kinds) in _ATTRIBUTE_TYPES.items():
        given = inspect.getattr_static(asks, name)
        if not isinstance(given, (*kinds, property)):
            raise PluginError(f"{who}: {name} is {given!r}; expected {expected}")
    if inspect.isfunction(inspect.getattr_static(asks, "key")):
        raise PluginError(f"{who}: key is a method; expected an attribute, such as self.key = … in __init__")


def _refuse_near_miss(who: str, plugin: type, known: Iterable[str], base: type) -> None:
    slip = near_miss(plugin, known, (base,))
    if slip is not None:
        raise PluginError(
            f"{who} defines {slip[0]}, which is not part of the interface; did you mean {slip[1]}? "
            f"A helper of its own needs another name, such as _{slip[0]}"
        )


def _refuse_partial(who: str, defined: Container[str], needed: Mapping[str, str], known: Mapping[str, Any]) -> None:
    for method, other in needed.items():
        if method in defined and other not in defined:
            raise PluginError(f"{who} defines {method} but not {other}{_signature(known[other])}")


def _check_methods(who: str, plugin: type, known: Mapping[str, Callable[..., Any]]) -> None:
    """Refuse a method of a class that does not fit the known method of its name."""
    for method_name, contract in known.items():
        method = inspect.getattr_static(plugin, method_name, None)
        if method is None:
            continue
        method = getattr(plugin, method_name)
        if not callable(method):
            raise PluginError(f"{who}: {method_name} is not a method")
        is_static = isinstance(inspect.getattr_static(plugin, method_name), staticmethod | classmethod)
        if not _accepts(method, contract, bound=is_static and "self" in inspect.signature(contract).parameters):
            raise PluginError(
                f"{who} does not fit the interface:\n"
                f"  it has    {method_name}{_signature(method)}\n"
                f"  expected  {method_name}{_signature(contract)}"
            )
        synchronous = method_name not in _MAY_BE_ASYNC
        if synchronous and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)):
            raise PluginError(
                f"{who}: {method_name} is async, but the scheduling cycle does not wait; "
                f"only {', '.join(_MAY_BE_ASYNC)} may be async"
            )


def _accepts(method: Callable[..., Any], contract: Callable[..., Any], *, bound: bool) -> bool:
    """Return True if a method can be called with the contract's arguments; ``bound``: without the first of them."""
    listed = list(inspect.signature(contract).parameters.values())[1 if bound else 0 :]
    named = {each.name: None for each in listed if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(method).bind(*range(len(listed) - len(named)), **named)
    except (TypeError, ValueError):
        return False
    return True


def _signature(method: Callable[..., Any]) -> str:
    return str(inspect.signature(method)).replace("'", "")


class Registry(Mapping[str, PluginFactory]):
    """Registry of plugin classes, by unique name.

    Attributes:
        problems: a message for each plugin of an installed package that could not be registered.
    """

    def __init__(self) -> None:
        self._plugins: dict[str, Any] = {}
        self.problems: list[str] = []

    def register(self, plugin: type, *, checked: bool = False) -> type:
        """Add a plugin class; usable as a decorator. A ``checked`` class is known to fit.

        Raises:
            PluginError: when the class does not fit, or the name is taken.
        """
        if not checked:
            check_plugin(plugin)
        name: str = plugin.name  # type: ignore[attr-defined]
        if name in self._plugins:
            raise PluginError(f"a plugin named {name} already exists")
        self._plugins[name] = plugin
        return plugin

    def unregister(self, name: str) -> None:
        """Remove a plugin.

        Raises:
            PluginError: when no plugin has this name.
        """
        if name not in self._plugins:
            raise PluginError(f"no plugin named {name} exists")
        del self._plugins[name]

    def load_entry_points(self) -> None:
        """Register the plugins of installed packages, from the entry-point group ``kubesched.scheduler.plugins``.

        A plugin is left out and reported in :attr:`problems` if it cannot be imported, does not fit, or has a name that
        is taken. A package that happens to be installed must not keep the scheduler from working.
        """
        for entry in self._entry_points():
            where = f"entry point {entry.name} = {entry.value}"
            try:
                if not EntryPoint.pattern.match(entry.value):
                    raise PluginError("expected package.module:Class")
                plugin = entry.load()
                if not inspect.isclass(plugin):
                    raise PluginError(f"it is {plugin!r}; expected a plugin class")
                self.register(plugin)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                what = str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
                self.problems.append(f"{where} is left out: {what}")

    def _entry_points(self) -> list[EntryPoint]:
        try:
            return list(entry_points(group=ENTRY_POINT_GROUP))
        except Exception:  # one package's metadata is broken: read the packages one by one
            found: dict[str, list[EntryPoint]] = {}  # by package name: the first package of a name is the one imported
        for package in distributions():
            name = ""
            try:
                name = package.metadata["Name"] or ""
                if not name or name not in found:
                    offered = list(package.entry_points.select(group=ENTRY_POINT_GROUP))
                    found.setdefault(name, []).extend(offered)
            except Exception as error:  # a parser of metadata may raise anything
                found.setdefault(name, [])
                what = f"package {name}" if name else "a package without a name"
                self.problems.append(f"entry points of {what} cannot be read: {type(error).__name__}: {error}")
        return [entry for entries in found.values() for entry in entries]

    def load_module(self, name: str) -> list[type]:
        """Register every plugin class that a module defines. ``name`` is an import name or a file path.

        Classes that a package imports from its own modules count as its own.

        Raises:
            PluginError: when the module cannot be imported or defines no plugin, or a plugin does not fit.
        """
        module = load_module(name)
        found = [
            member
            for member in vars(module).values()
            if inspect.isclass(member)
            and f"{member.__module__}.".startswith(f"{module.__name__}.")
            and bool(getattr(member, "name", ""))
        ]
        if not found:
            raise PluginError(f"module {name} defines no plugin: a plugin is a class with a name attribute")
        return [self.register(plugin) for plugin in found]

    def capabilities(self) -> dict[str, frozenset[str]]:
        """Return the keys of the points that each plugin extends, by plugin name."""
        return {name: capabilities(plugin) for name, plugin in self._plugins.items()}

    def __getitem__(self, name: str) -> PluginFactory:
        factory: PluginFactory = self._plugins[name]
        return factory

    def __iter__(self) -> Iterator[str]:
        return iter(self._plugins)

    def __len__(self) -> int:
        return len(self._plugins)

    def copy(self) -> Registry:
        twin = Registry()
        twin._plugins = dict(self._plugins)
        twin.problems = list(self.problems)
        return twin


def load_module(name: str) -> Any:
    """Import a module by name, or by path when the name ends in ``.py``.

    Raises:
        PluginError: when the import fails; the message has the reason.
    """
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = Path(name)
        spec = importlib.util.spec_from_file_location(f"kubesched_plugin_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise PluginError(f"plugin module {name}: no such file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except (PluginError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        text = f"plugin module {name} cannot be imported: {type(error).__name__}: {error}"
        own = [
            frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == Path(name).resolve()
        ]
        place = f" (line {own[-1].lineno})" if own else ""
        raise PluginError(f"{text}{place}") from error
    else:
        return module
