"""Work on storage that takes time and may fail, by stage rules: when it is due, how it ends, when it is tried again.

Callers: :mod:`.provisioner` and :mod:`.attachments`; the rules are those of :mod:`..kubelets.stages` for one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..kubelets import Stage, choose, rules_of
from .context import Context
from .work_queue import STUCK_AFTER, WorkQueue

__all__ = ["Attempts"]

_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Attempt:
    """What is under way for one object; another ``about`` starts it again."""

    about: str
    matching: list[Stage]
    stage: Stage | None = None
    due: float = 0.0
    failures: int = 0


class Attempts:
    """The current attempt of each object, by any key. ``queue`` gets its controller's key when the attempt is due."""

    def __init__(self, context: Context, kind: str, queue: WorkQueue) -> None:
        self._context = context
        self._queue = queue
        self._stages = rules_of(kind, context.settings.stages)
        self._current: dict[str, _Attempt] = {}

    def left(
        self,
        key: str,
        queued: str,
        metadata: Mapping[str, Any],
        source: str,
        labels: Mapping[str, str],
        *,
        about: str = "",
        deleted: bool = False,
    ) -> float | None:
        """Seconds until an attempt ends, which this call begins when there is none; None when no rule lets it begin.

        As long as some are left, ``queued`` is reconciled again after them.
        ``source``, ``labels`` and ``deleted`` are what :meth:`Stage.matches_volume` compares. An attempt that no rule
        is for ends at once, one whose rules all have weight 0 never.
        """
        known = self._current.get(key)
        if known is None or known.about != about:
            matching = [one for one in self._stages if one.matches_volume(metadata, source, labels, deleted=deleted)]
            known = self._current[key] = _Attempt(about, matching)
            known.due = self._context.now() + self._draw(known)
        if known.stage is not None and known.stage.weight <= 0:
            return None
        left = max(0.0, known.due - self._context.now())
        if left:
            self._wait(known, queued, left)
        return left

    def _wait(self, attempt: _Attempt, queued: str, seconds: float) -> None:
        """One that has failed so often that it most likely fails again keeps nothing moving."""
        self._queue.add_after(queued, seconds, quiet=attempt.failures > STUCK_AFTER)

    def _draw(self, attempt: _Attempt) -> float:
        """Choose the rule of an attempt; how many seconds it takes."""
        matching = attempt.matching
        attempt.stage = choose(matching, self._context.rng) or matching[0] if matching else None
        return attempt.stage.seconds(self._context.rng) if attempt.stage is not None else 0.0

    def outcome(self, key: str) -> tuple[str, str]:
        """How an attempt that is due ends, which is drawn here: reason and text of a failure, or two empty texts."""
        stage = self._current[key].stage
        if stage is None or not stage.fails(self._context.rng):
            return "", ""
        return stage.failure.reason, f"stage rule {stage.name}"

    def again(self, key: str, queued: str) -> None:
        """Try again after a failure, with a delay that doubles each time and the next rule's added."""
        known = self._current[key]
        known.failures += 1
        seconds = self._draw(known) + min(
            _FIRST_RETRY_SECONDS * 2.0 ** min(known.failures - 1, 30), _LONGEST_RETRY_SECONDS
        )
        known.due = self._context.now() + seconds
        self._wait(known, queued, seconds)

    def forget(self, key: str) -> None:
        """The work is done or no longer wanted."""
        self._current.pop(key, None)
