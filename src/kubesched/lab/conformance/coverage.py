"""Coverage of a replay: the code paths that its attempts used. A replay says nothing about code that no vector reaches.

It counts the attempts that ``Search.find`` answered, by path, and the calls of each Filter and Score plugin during
those attempts, by form: ``vector`` for many rows at once, ``row`` for a single node. Without a coverage a replay costs
nothing more, because the search then has no observer and entries have no wrapper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kubesched.scheduler.core.search import Path, Search
from kubesched.scheduler.framework.entries import FilterEntry, ScoreEntry
from kubesched.scheduler.framework.runtime import Framework

__all__ = ["FORMS", "Coverage"]

#: Method of an entry, by the form of the calls that it makes.
FORMS: Final = {"vector": "many", "row": "one"}


class Coverage:
    """Counts over all watched clusters.

    Attributes:
        paths: path to number of attempts; every path is a key.
        calls: (extension point, plugin) to calls by form.
    """

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter(dict.fromkeys((path.value for path in Path), 0))
        self.calls: dict[tuple[str, str], Counter[str]] = {}
        self._finding = False

    def watch(self, frameworks: dict[str, Framework], searches: dict[str, Search]) -> None:
        """Count the work of these frameworks and searches from now on."""
        for search in searches.values():
            search.observer = self._answered
        for framework in frameworks.values():
            for filtering in framework.filters:
                self._wrap("Filter", filtering)
            for scoring in framework.scores:
                self._wrap("Score", scoring)

    @contextmanager
    def finding(self) -> Iterator[None]:
        """Context of a ``Search.find``. Calls outside belong to the full evaluation and are not counted."""
        self._finding = True
        try:
            yield
        finally:
            self._finding = False

    def _answered(self, path: Path) -> None:
        self.paths[path.value] += 1

    def _wrap(self, point: str, entry: FilterEntry | ScoreEntry) -> None:
        counter = self.calls.setdefault((point, entry.name), Counter(dict.fromkeys(FORMS, 0)))
        for form, method in FORMS.items():
            setattr(entry, method, self._counted(counter, form, getattr(entry, method)))

    def _counted(self, counter: Counter[str], form: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._finding:
                counter[form] += 1
            return method(*args)

        return call
