"""Timed work on storage that may fail. Stage rules decide when it is due, how it ends, and when it is tried again.

Callers: :mod:`.provisioner` and :mod:`.attachments`; the rules are stage rules for one kind (:mod:`..kubelets.stages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubesched.api.kinds import NODES
from kubesched.api.wire import Item

from ..kubelets import Stage, choose, rules_of
from .context import Context
from .work_queue import STUCK_AFTER, WorkQueue

__all__ = ["Attempts"]

_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Attempt:
    """Work under way for one object.

    ``about`` is (its node, True if it is being deleted). When ``about`` changes, the work starts again.
    """

    queued: str
    about: tuple[str, bool]
    matching: list[Stage]
    stage: Stage | None = None
    due: float = 0.0
    failures: int = 0


class Attempts:
    """Current attempts, by UID of the object. The key of an attempt that is due is added to ``queue``."""

    def __init__(self, context: Context, kind: str, queue: WorkQueue) -> None:
        self._context = context
        self._nodes = context.cache(NODES)
        self._queue = queue
        self._stages = rules_of(kind, context.settings.stages)
        self._current: dict[str, _Attempt] = {}

    def end(self, item: Item, queued: str, source: str, node: str) -> tuple[str, str] | None:
        """Return the end of an attempt: reason and text of a failure, or two empty texts; None while it is not due.

        The first call begins the attempt. A timer adds ``queued`` to the queue when the attempt is due.
        :meth:`Stage.matches_volume` compares ``source``, the labels of ``node`` and the object's metadata with the
        rules. An attempt that matches no rule ends at once. An attempt whose rules all have weight 0 never ends.
        """
        metadata = item.typed.metadata
        about = (node, metadata.deletion_timestamp is not None)
        known = self._current.get(item.uid)
        if known is None or known.about != about:
            found = self._nodes.get(node)
            labels = found.typed.metadata.labels if found is not None else {}
            matching = [one for one in self._stages if one.matches_volume(metadata, source, labels)]
            known = self._current[item.uid] = _Attempt(queued, about, matching)
            known.due = self._context.now() + self._draw(known)
        stage, left = known.stage, known.due - self._context.now()
        if stage is not None and stage.weight <= 0:
            return None
        if left > 0:
            self._wait(known, left)
            return None
        if stage is not None and stage.fails(self._context.rng):
            return stage.failure.reason, f"stage rule {stage.name}"
        return "", ""

    def _wait(self, attempt: _Attempt, seconds: float) -> None:
        """Set the timer. After many failures it is quiet: the next try most likely fails again."""
        self._queue.add_after(attempt.queued, seconds, quiet=attempt.failures > STUCK_AFTER)

    def _draw(self, attempt: _Attempt) -> float:
        """Choose the rule of an attempt. Returns its delay in seconds."""
        matching = attempt.matching
        attempt.stage = choose(matching, self._context.rng) or matching[0] if matching else None
        return attempt.stage.seconds(self._context.rng) if attempt.stage is not None else 0.0

    def again(self, item: Item) -> None:
        """Try again after a failure. The delay doubles each time, and the delay of the next rule is added."""
        known = self._current[item.uid]
        known.failures += 1
        delay = _FIRST_RETRY_SECONDS * 2.0 ** min(known.failures - 1, 30)
        seconds = self._draw(known) + min(delay, _LONGEST_RETRY_SECONDS)
        known.due = self._context.now() + seconds
        self._wait(known, seconds)

    def forget(self, item: Item) -> None:
        """Forget an object whose work is done or no longer wanted."""
        self._current.pop(item.uid, None)
