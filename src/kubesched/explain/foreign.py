"""Calls of what a plugin gives to explanations: its demands, and what-ifs of nodes and evictions.

Plugins may be anyone's. Whatever they raise becomes a :class:`PluginFailedError` with the plugin's name, and what they
return has a bound; so a defect costs the proposals of one plugin, and the explanation has a remark about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec

from kubesched.scheduler.framework.demand import Amounts, Change, Demand
from kubesched.scheduler.framework.failures import PluginFailedError, called

__all__ = ["MOST_WEAKER", "guarded", "remark", "short", "what_if"]

#: Most weaker forms of one demand.
MOST_WEAKER: Final = 8
#: Most pods that are named as holders at one node.
_MOST_HOLDERS: Final = 1024
_MOST_CHARACTERS: Final = 200


@contextmanager
def what_if(plugin: str, method: str, make: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """Enter the what-if that a plugin's method makes. Errors of the block itself pass.

    Raises:
        PluginFailedError: when the plugin raises, on the way in or out.
    """
    prefix = f"running {method} of plugin"
    block = called(prefix, plugin, make)
    value = called(prefix, plugin, _entered, block)
    try:
        yield value
    except BaseException as error:
        kind, trace = type(error), error.__traceback__
        try:
            block.__exit__(kind, error, trace)
        except Exception as other:
            if other is not error:
                raise PluginFailedError(plugin, other) from error
        raise
    called(prefix, plugin, lambda: block.__exit__(None, None, None))


def _entered(block: AbstractContextManager[Any]) -> Any:
    return block.__enter__()


def guarded(plugin: str, demand: Demand) -> Demand:
    """Return the demand with its functions guarded.

    Words that fail are replaced by a sentence about it; holders and numbers that fail are none. The others raise
    PluginFailedError.
    """
    prefix, amounts = "running demands of plugin", demand.amounts

    def text(rows: Any) -> str:
        try:
            return str(demand.text(rows))
        except Exception as error:
            return f"a demand without words, because they failed: {short(error)}"

    def data(rows: Any) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = msgspec.to_builtins(dict(demand.data(rows)))
        except Exception:
            return {}
        return found

    def holders(row: int) -> Iterable[Any]:
        try:
            return list(islice(demand.holders(row), _MOST_HOLDERS))
        except Exception:
            return ()

    def change(one: Change) -> Change:
        return Change(
            one.text,
            lambda pod: called(prefix, plugin, one.of, pod),
            lambda: what_if(plugin, "demands", one.around),
        )

    less = None
    if amounts is not None:
        less = Amounts(
            amounts.asked,
            lambda rows: called(prefix, plugin, amounts.lacking, rows),
            lambda amount: change(called(prefix, plugin, amounts.less, amount)),
        )
    return replace(
        demand,
        text=text,
        without=None if demand.without is None else change(demand.without),
        weaker=[change(one) for one in islice(demand.weaker, MOST_WEAKER)],
        amounts=less,
        data=data,
        holders=holders,
    )


def remark(error: PluginFailedError, what: str) -> str:
    """Return a sentence about a failure of a plugin and ``what`` it costs."""
    return f"plugin {error.plugin} failed, so {what}: {short(error.error)}"


def short(error: BaseException) -> str:
    """Return the text of an exception on one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
