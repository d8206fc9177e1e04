"""Which code paths a replay exercised: what the recorded decisions do not reach, they do not show to be right.

Counted are the attempts that ``Search.find`` answered, by path, and how often each Filter and Score plugin was
called during those attempts, by form: ``vector`` for many rows at once, ``row`` for a single node. Watching costs
nothing where there is no coverage: the search has an observer only then, and entries are wrapped only then.
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

#: Form to the method of an entry that calls a plugin that way.
FORMS: Final = {"vector": "many", "row": "one"}


class Coverage:
    """Counts over all the clusters it watched.

    Attributes:
        paths: path to number of attempts; every path is a key.
        calls: (extension point, plugin) to calls by form.
    """

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter(dict.fromkeys((path.value for path in Path), 0))
        self.calls: dict[tuple[str, str], Counter[str]] = {}
        self._finding = False

    def watch(self, frameworks: dict[str, Framework], searches: dict[str, Search]) -> None:
        """Count what these do from now on."""
        for search in searches.values():
            search.observer = self._answered
        for framework in frameworks.values():
            for filtering in framework.filters:
                self._wrap("Filter", filtering)
            for scoring in framework.scores:
                self._wrap("Score", scoring)

    @contextmanager
    def finding(self) -> Iterator[None]:
        """While ``Search.find`` runs; calls outside are those of the full evaluation and are not counted."""
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
