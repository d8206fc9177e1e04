"""Pages of a live scheduler: explanations of its pods, and its recorded decisions.

    /explain/pending              all pending pods; ``?namespace=&node=``
    /explain/pods/NAMESPACE/NAME  one pod, or else the pod group of this name, or the workload whose pods a quota refuses;
                                  ``?node=`` compares with a node and may be repeated
    /explain/podgroups/NAMESPACE/NAME
                                  one pod group
    /explain/nodes/NAME           the pending pods, and what keeps each off this node
    /decisions                    recorded attempts, oldest first; ``?pod=&node=&plugin=&outcome=&since=&until=&limit=``

Other parameters are refused. An explanation is a document of kind Explanation (:mod:`.report`), or lines for people if
the request accepts only plain text. Explanations are made one at a time. All answers together, with the words and the JSON,
take at most a share of the event loop while the scheduler has work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.types import Pod
from kubesched.base.large_json import large_json
from kubesched.base.lines import printable
from kubesched.base.pages import Answer, BadQueryError, Query, check_names, one_value
from kubesched.base.times import timestamp
from kubesched.base.turns import Pace, Steps
from kubesched.scheduler.scheduler import Scheduler

from .explainer import Explainer
from .objects import InformedObjects, Objects
from .preemptions import PreemptionMemory
from .records.ring import RecordFilter, Ring, json_lines
from .records.schema import Record
from .report import Explanation
from .text import explanation_lines

__all__ = ["LivePages"]

T = TypeVar("T")

#: Share of the event loop that answers may take while the scheduler has work.
_SHARE: Final = 0.03
#: Most requests that wait for their turn; more are refused.
_MOST_WAITING: Final = 8
#: Most nodes that one request compares with, and most records of one answer.
_MOST_NODES: Final = 16
_MOST_RECORDS: Final = 1000

#: Parameters of the page of decisions.
_FILTERS: Final = ("pod", "node", "plugin", "outcome", "since", "until", "limit")

_JSON: Final = "application/json"
_PLAIN: Final = "text/plain"


class LivePages:
    """Pages about one scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        ready: Callable[[], bool] = lambda: True,
        preemptions: PreemptionMemory | None = None,
        decisions: Ring | None = None,
        objects: Objects | None = None,
        time: Callable[[], float] | None = None,
        live: bool = True,
    ) -> None:
        """``ready`` returns True once the scheduler's caches are filled. ``time`` is the event loop's by default.

        Without ``live`` the scheduler stands still, and places in its queue mean nothing.
        ``objects`` are those that the scheduler watches by default. It watches no quotas and no workloads.
        """
        self._scheduler = scheduler
        now = time if time is not None else asyncio.get_running_loop().time
        self._pace = Pace(_SHARE, lambda: scheduler.is_idle, now)
        self._ready = ready
        self.decisions = decisions
        #: API objects besides nodes and pods, and the recorded decisions, that answers are made of.
        self.objects = objects = objects if objects is not None else InformedObjects(scheduler.informers)
        self._explainer = Explainer(scheduler, objects, preemptions=preemptions, decisions=decisions, live=live)
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def answer(self, path: str, query: Query, accept: str) -> Answer:
        """Answer a GET request; see :data:`kubesched.base.pages.Page`."""
        try:
            match path.strip("/").split("/"):
                case ["decisions"]:
                    check_names(query, *_FILTERS)
                    return await self._recorded(query)
                case ["explain", "pending"]:
                    check_names(query, "namespace", "node")
                    namespace = one_value(query, "namespace")
                    return await self._explained(
                        lambda: self._pending(namespace),
                        _nodes(query),
                        accept,
                        as_groups=True,
                        lacking=(namespace or None, ()),
                    )
                case ["explain", "nodes", name]:
                    check_names(query)
                    if self._scheduler.cache.table.row_of(name) is None:
                        return _text(404, f"no node is named {name}")
                    return await self._explained(self._pending, [name], accept)
                case ["explain", "podgroups", namespace, name]:
                    check_names(query)
                    return await self._explained_group(f"{namespace}/{name}", accept)
                case ["explain", "pods", namespace, name]:
                    check_names(query, "node")
                    pod = self._scheduler.informers.live_pod(namespace, name)
                    if pod is None and self._explainer.groups.knows(f"{namespace}/{name}"):
                        return await self._explained_group(f"{namespace}/{name}", accept)
                    last = (
                        self.decisions.last_of(namespace, name) if pod is None and self.decisions is not None else None
                    )
                    key, alone = f"{namespace}/{name}", [pod] if pod is not None else []
                    lacking = (namespace, [key]) if pod is None else None
                    return await self._explained(
                        lambda: alone, _nodes(query), accept, key=key, last=last, lacking=lacking
                    )
        except BadQueryError as error:
            return _text(400, str(error))
        return _text(404, "404 page not found")

    def _pending(self, namespace: str = "") -> list[Pod]:
        pods = self._scheduler.informers.pods.values()
        return [pod for pod in pods if not pod.spec.node_name and namespace in ("", pod.namespace)]

    async def _explained_group(self, key: str, accept: str) -> Answer:
        if not self._explainer.groups.knows(key):
            return _text(404, f"no pod group is named {key}")
        return await self._explained(list, (), accept, groups=[key])

    async def _explained(
        self,
        pods: Callable[[], list[Pod]],
        nodes: Sequence[str],
        accept: str,
        key: str = "",
        last: Record | None = None,
        lacking: tuple[str | None, Sequence[str]] | None = None,
        **how: Any,
    ) -> Answer:
        """Answer with an explanation. ``key`` is the pod in question, ``last`` its last decision if it is gone.

        ``lacking``: also look for workloads that lack pods because of quotas, of this namespace and with these names.
        """
        if not self._ready():
            return _text(503, "the scheduler has not read the cluster yet", retry_after=1)
        if self._waiting >= _MOST_WAITING:
            return _text(429, f"{_MOST_WAITING} answers are waited for already", retry_after=5)
        unknown = [name for name in nodes if self._scheduler.cache.table.row_of(name) is None]
        if unknown:
            return _text(404, f"no node is named {unknown[0]}")

        def answering() -> Steps[Answer]:
            chosen = pods()
            document = yield from self._explainer.explaining(chosen, nodes, **how)
            if key:
                document = msgspec.structs.replace(document, evicted=self._explainer.evictions_of(key))
            if last is not None:
                document = msgspec.structs.replace(document, notes=[_gone(last)])
            if lacking is not None:
                every = list(self._scheduler.informers.pods.values())
                found = yield from self._explainer.finding_not_created(every, *lacking)
                document = msgspec.structs.replace(document, not_created=found)
            yield
            if key and not (chosen or document.evicted or document.notes or document.not_created):
                recorded = "" if self.decisions is not None else "; decisions are not recorded"
                return _text(404, f"no pod is named {key}, and none of this name was evicted lately{recorded}")
            return _rendered(document, accept)

        self._waiting += 1
        try:
            async with self._turn:
                return await self.paced(answering())
        finally:
            self._waiting -= 1

    async def explain(self, pods: Sequence[Pod]) -> Explanation:
        """Explain pods, in turn with the requests and within the same share of the event loop.

        Members of pod groups are not explained one by one, but their groups are.
        """
        async with self._turn:
            return await self.paced(self._explainer.explaining(pods, as_groups=True))

    async def paced(self, steps: Steps[T]) -> T:
        """Run steps within the share of all answers."""
        return await self._pace.run(steps)

    async def _recorded(self, query: Query) -> Answer:
        """Answer with recorded attempts as lines of JSON."""
        if self.decisions is None:
            return _text(404, "decisions are not recorded")
        limit = _number(query, "limit")
        if limit is not None and not 1 <= limit <= _MOST_RECORDS:
            raise BadQueryError(
                f"limit: expected a number from 1 to {_MOST_RECORDS}, got {one_value(query, 'limit')[:32]!r}"
            )
        wanted = RecordFilter(
            pod=one_value(query, "pod"),
            node=one_value(query, "node"),
            plugin=one_value(query, "plugin"),
            outcome=one_value(query, "outcome"),
            since=_number(query, "since"),
            until=_number(query, "until"),
        )
        if self._waiting >= _MOST_WAITING:
            return _text(429, f"{_MOST_WAITING} answers are waited for already", retry_after=5)
        finding = self.decisions.finding(wanted, most=int(limit or _MOST_RECORDS))

        def answering() -> Steps[Answer]:
            records = yield from finding
            yield
            return Answer(200, b"".join(json_lines(records)), "application/x-ndjson")

        self._waiting += 1
        try:
            return await self.paced(answering())
        finally:
            self._waiting -= 1


def _rendered(document: Explanation, accept: str) -> Answer:
    """Return an explanation as JSON, or as lines if the request accepts only these."""
    if _wants_text(accept):
        lines = explanation_lines(document)
        return _text(200, "\n".join(printable(line.text) for line in lines).strip("\n") or "no pod is pending")
    return Answer(200, bytes(large_json(document, indent=2)) + b"\n", _JSON)


def _gone(last: Record) -> str:
    """Return what was decided last about a pod that is gone."""
    node = f" on {last.node}" if last.node else ""
    text = f"{last.pod.key} is gone; its attempt {last.attempt} at {timestamp(last.at)} ended {last.outcome}{node}"
    return f"{text}: {last.message}" if last.message else text


def _text(status: int, text: str, *, retry_after: int = 0) -> Answer:
    return Answer(status, f"{text}\n".encode(), _PLAIN, retry_after)


def _number(query: Query, name: str) -> float | None:
    text = one_value(query, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < 1e12:
        raise BadQueryError(f"{name}: expected a number, in seconds since the epoch for a time, got {text[:32]!r}")
    return number


def _nodes(query: Query) -> list[str]:
    names = list(dict.fromkeys(query.get("node", ())))
    if len(names) > _MOST_NODES:
        raise BadQueryError(f"node: at most {_MOST_NODES} nodes are compared, got {len(names)}")
    return names


def _wants_text(accept: str) -> bool:
    """Return True if the Accept header names plain text and no JSON."""
    types = [part.split(";")[0].strip() for part in accept.split(",")]
    return _PLAIN in types and _JSON not in types
