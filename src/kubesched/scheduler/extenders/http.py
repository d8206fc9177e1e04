"""Extender behind HTTP: one session per extender, every call bounded by the configured timeout.

Implements :class:`kubesched.scheduler.extenders.interface.Extender`. The scheduler's extender lane, binding cycles and
preemption use it. Needs aiohttp.

    answered with 200 and a readable body    -> the answer
    anything else                            -> ExtenderError

Source: rules/framework §8.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.types import Pod
from kubesched.base.collector import forget_frames
from kubesched.base.extras import needing
from kubesched.client.bodies import AnswerTooLongError, Held, read_body

from ..config import Extender as Config
from ..framework.preemption import Victims
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from . import messages
from .interface import ClusterView, ExtenderError, FilterAnswer
from .tls import tls_context

with needing("a configuration with HTTP extenders", "server"):
    import aiohttp

__all__ = ["HttpExtender", "http_extenders"]

T = TypeVar("T")

#: Request size in bytes above which aiohttp needs a file object, which it sends piece by piece.
_LARGE: Final = 1 << 20
#: Most bytes of an answer, in addition to twice the bytes of the request. An answer may repeat the request's nodes.
_MOST_ANSWER: Final = 16 << 20


class HttpExtender:
    """One configured extender, called over HTTP.

    Raises:
        ConfigError: when its TLS settings cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._prefix = config.url_prefix.rstrip("/")
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._tls = tls_context(config)
        self._server_name = config.tls_config.server_name if config.tls_config is not None else ""
        self._session: aiohttp.ClientSession | None = None
        self._view: ClusterView | None = None

    # -- properties ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._config.url_prefix

    @property
    def ignorable(self) -> bool:
        return self._config.ignorable

    @property
    def weight(self) -> int:
        return self._config.weight

    @property
    def supports_filter(self) -> bool:
        return bool(self._config.filter_verb)

    @property
    def supports_prioritize(self) -> bool:
        return bool(self._config.prioritize_verb)

    @property
    def supports_preemption(self) -> bool:
        return bool(self._config.preempt_verb)

    @property
    def is_binder(self) -> bool:
        return bool(self._config.bind_verb)

    @property
    def node_cache_capable(self) -> bool:
        """True if the extender is sent node names instead of node objects."""
        return self._config.node_cache_capable

    def is_interested(self, pod: PodInfo) -> bool:
        managed = self._managed
        return not managed or any(
            not managed.isdisjoint(container.resources.requests) or not managed.isdisjoint(container.resources.limits)
            for containers in (pod.spec.containers, pod.spec.init_containers)
            for container in containers
        )

    def connect(self, view: ClusterView) -> None:
        """Set the view in which to look up objects; called by the scheduler that uses the extender."""
        self._view = view

    # -- verbs -----------------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
        read = partial(messages.filter_answer, node_cache_capable=self.node_cache_capable)
        return await self._ask(self._config.filter_verb, self._about_nodes(pod, nodes), read)

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        return await self._ask(self._config.prioritize_verb, self._about_nodes(pod, nodes), messages.score_answer)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        # The request is not repeated, because the first one may have been carried out.
        request = messages.bind_request(pod, node_name)
        if problem := await self._ask(self._config.bind_verb, request, messages.refusal, repeat=False):
            raise ExtenderError(problem)

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        documents = None
        if not self.node_cache_capable:
            documents = {one.uid: self._document(one.pod) for found in victims.values() for one in found.pods}
        request = messages.preempt_request(self._document(pod.pod), victims, documents)
        answer = await self._ask(self._config.preempt_verb, request, messages.preempt_answer)
        return {name: self._victims(name, found, victims.get(name)) for name, found in answer.items()}

    def _victims(self, node_name: str, found: messages.MetaVictims | None, given: Victims | None) -> Victims:
        """Resolve the pods that an answer names by UID. Any pod of that node may be named.

        Raises:
            ExtenderError: when the node or a pod does not exist.
        """
        node = self._view.node(node_name) if self._view is not None else None
        if node is None and given is None:
            raise ExtenderError(f'extender: {self.name} claims to preempt on node "{node_name}", which is not found')
        if found is None:
            return Victims(())
        pods = {pod.uid: pod for pod in given.pods} if given is not None else {}
        if node is not None:
            pods |= node.pods
        for uid in found.uids():
            if uid not in pods:
                text = f"claims to preempt pod (UID: {uid}) on node: {node_name}, but the pod is not found on that node"
                raise ExtenderError(f"extender: {self.name} {text}")
        return Victims(tuple(pods[uid] for uid in found.uids()), found.num_pdb_violations)

    # -- conversation ----------------------------------------------------------------------------------

    def _about_nodes(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> bytes:
        document = self._document(pod.pod)
        if self.node_cache_capable:
            return messages.node_request(document, [node.name for node in nodes], None)
        # A node without an object was removed a moment ago.
        return messages.node_request(
            document, None, [self._document(node.node) for node in nodes if node.node is not None]
        )

    def _document(self, obj: Any) -> bytes:
        """Return an object as the API server wrote it, or else the part of it that the scheduler knows, as JSON."""
        whole = None
        if self._view is not None:
            whole = self._view.pod_document(obj) if isinstance(obj, Pod) else self._view.node_document(obj)
        return whole if whole is not None else msgspec.json.encode(obj)

    async def _ask(self, verb: str, request: bytes, read: Callable[[bytes], T], *, repeat: bool = True) -> T:
        """Send a request and read the answer. With ``repeat`` the request is sent again if a kept connection turns out
        to be closed.

        Raises:
            ExtenderError: when there is no usable answer.
        """
        url = f"{self._prefix}/{verb}"
        body = await self._post(verb, url, request, repeat=repeat)
        try:
            return read(body)
        except messages.UnreadableAnswerError as error:
            raise ExtenderError(f'Post "{url}": {error}') from error

    async def _post(self, verb: str, url: str, request: bytes, *, repeat: bool) -> bytes:
        """Return the body of an answer with code 200.

        Raises:
            ExtenderError: when there is no such answer.
        """
        while True:
            try:
                body = io.BytesIO(request) if len(request) > _LARGE else request
                async with self._opened().post(
                    url, data=body, server_hostname=self._server_name or None, ssl=self._tls.current()
                ) as response:
                    if response.status != 200:
                        raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                    return bytes(await read_body(response, Held(_MOST_ANSWER + 2 * len(request))))
            except AnswerTooLongError as error:
                raise ExtenderError(f'Post "{url}": {error.strerror}') from error
            except aiohttp.ServerDisconnectedError as error:
                # The other side may be closing a connection that was kept from the last call.
                forget_frames(error)
                if not repeat:
                    raise ExtenderError(f'Post "{url}": {_reason(error)}') from error
                repeat = False
            except TimeoutError as error:
                forget_frames(error)
                text = f"no answer within {self._config.timeout_seconds:g}s"
                raise ExtenderError(f'Post "{url}": {text}') from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                self._tls.refused()
                forget_frames(error)
                raise ExtenderError(f'Post "{url}": {_reason(error)}') from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kubesched"},
                timeout=aiohttp.ClientTimeout(total=self._config.timeout_seconds),
                trust_env=True,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections. A later call would open new connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def __repr__(self) -> str:
        return f"<HttpExtender {self.name}>"


def http_extenders(configs: Iterable[Config]) -> tuple[HttpExtender, ...]:
    """Make the extenders of a configuration. The scheduler that is given them closes them.

    Raises:
        ConfigError: when an extender's TLS settings cannot be used.
    """
    return tuple(HttpExtender(config) for config in configs)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        number = error.os_error.errno
        return os.strerror(number).lower() if number and number > 0 else str(error.os_error)
    return str(error) or type(error).__name__
