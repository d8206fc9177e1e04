"""Authorities of client certificates: from files, else from the configmap that the API server publishes.

    files ─────────────────────────┐
    configmap ──informer──▶ parsed ┴──▶ Trust for the authenticator, and bundles for TLS handshakes

Caller: :mod:`.server`. Source: rules/serving §5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from kubesched.api.kinds import Kind, kind_by_plural
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.api.wire import ApiError, Transport
from kubesched.base.small_file import read_small_file
from kubesched.base.tasks import Supervisor
from kubesched.client.informer import Informer

from .authentication import RequestHeaders, Trust
from .options import AuthenticationOptions, ServingError
from .tls import TlsContexts, certificates_in

__all__ = ["CONFIGMAP", "NAMESPACE", "TrustSources"]

_log = logging.getLogger("kubesched.scheduler.server")

NAMESPACE: Final = "kube-system"
CONFIGMAP: Final = "extension-apiserver-authentication"
_WHERE: Final = f"configmap/{CONFIGMAP} in {NAMESPACE}"
_REMINDER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Bundle of PEM as given, and the certificates in it (DER)."""

    pem: bytes = b""
    certificates: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, pem: bytes, source: str) -> _Bundle:
        try:
            return cls(pem, certificates_in(pem))
        except ValueError as error:
            raise ServingError(f"{source}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Published:
    """Content of the configmap."""

    client: _Bundle = _Bundle()
    front_proxy: _Bundle = _Bundle()
    headers: RequestHeaders | None = None


class TrustSources:
    """Sources of authorities, which keep ``current`` and the TLS handshakes up to date.

    ``transport`` reads the configmap. Without it client certificates are accepted only of CAs that are given as files.
    """

    def __init__(
        self, options: AuthenticationOptions, tls: TlsContexts, *, transport: Transport | None, rng: Random
    ) -> None:
        self._options = options
        self._tls = tls
        self._transport = transport
        self._rng = rng
        self._files: tuple[_Bundle, _Bundle] = (_Bundle(), _Bundle())
        self._published = _Published()
        self.current = Trust()

    @property
    def follows_configmap(self) -> bool:
        """True if there is a configmap for :meth:`run` to follow."""
        return self._needs_lookup and self._transport is not None

    @property
    def _needs_lookup(self) -> bool:
        """True if a CA has to be read from the configmap."""
        options = self._options
        return not options.skip_lookup and (
            options.client_ca_file is None or options.requestheader_client_ca_file is None
        )

    async def start(self) -> None:
        """Read files and configmap once.

        Raises:
            ServingError: for a file that cannot be used, and for a failed lookup that is not tolerated.
        """
        self._files = self._read_files()
        self._apply()
        if not self._needs_lookup:
            return
        if self._transport is None:
            _log.warning(
                "No authentication kubeconfig: %s is not read, and client certificates of its authorities are not accepted",
                _WHERE,
            )
            return
        try:
            async with asyncio.timeout(10.0):
                item = await self._transport.get(_configmap_kind(), NAMESPACE, CONFIGMAP)
        except (ApiError, OSError, TimeoutError) as error:
            if not self._options.tolerate_lookup_failure:
                raise ServingError(f"unable to load {_WHERE}: {_why(error)}") from None
            _log.warning(
                "%s cannot be read: %s. Usually fixed by 'kubectl create rolebinding -n %s ROLEBINDING_NAME "
                "--role=%s-reader --serviceaccount=YOUR_NS:YOUR_SA'. Going on without it",
                _WHERE,
                _why(error),
                NAMESPACE,
                CONFIGMAP,
            )
            return
        self.on_add(item.data(), is_initial=True)

    async def run(self) -> None:
        """Follow the configmap until cancelled, and log an error every minute while there is none.

        Raises:
            TaskCrashedError: when a task that follows it fails.
        """
        assert self._transport is not None
        informer = Informer(
            self._transport,
            _configmap_kind(),
            rng=self._rng,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={CONFIGMAP}",
        )
        informer.add_handler(self)
        async with Supervisor("authentication-config") as tasks:
            tasks.spawn(informer.run(), "authentication-configmap")
            tasks.spawn(self._remind(informer), "authentication-configmap-reminder")
            await tasks.ended()

    async def _remind(self, informer: Informer) -> None:
        while True:
            await asyncio.sleep(_REMINDER_SECONDS)
            if not len(informer):
                _log.error("Unable to get %s: it does not exist or cannot be read", _WHERE)

    def reload(self) -> bool:
        """Read the CA files again. True if they changed.

        Raises:
            ServingError: when a file cannot be used; the earlier authorities stay.
        """
        files = self._read_files()
        if files == self._files:
            return False
        before, self._files = self._files, files
        try:
            self._apply()
        except ServingError:
            self._files = before
            raise
        _log.info("client certificate authorities changed")
        return True

    # -- informer handler ----------------------------------------------------------------------------------

    def on_add(self, obj: Any, is_initial: bool) -> None:
        before = self._published
        try:
            self._published = _parse(obj.get("data") or {})
            self._apply()
        except ServingError as error:
            self._published = before
            _log.error("%s; its previous content stays in force", error)

    def on_update(self, old: Any, new: Any) -> None:
        self.on_add(new, is_initial=False)

    def on_delete(self, obj: Any | DeletedFinalStateUnknown) -> None:
        _log.error("%s was deleted; its previous content stays in force", _WHERE)

    # -- putting it together -------------------------------------------------------------------------------

    def _read_files(self) -> tuple[_Bundle, _Bundle]:
        options = self._options
        return _from_file(options.client_ca_file), _from_file(options.requestheader_client_ca_file)

    def _apply(self) -> None:
        options, published = self._options, self._published
        client = self._files[0] if options.client_ca_file is not None else published.client
        headers: RequestHeaders | None
        if options.requestheader_client_ca_file is not None:
            proxy = self._files[1]
            headers = RequestHeaders(
                proxy.certificates,
                options.requestheader_allowed_names,
                options.requestheader_username_headers,
                options.requestheader_group_headers,
                options.requestheader_uid_headers,
                options.requestheader_extra_headers_prefix,
            )
        else:
            proxy, headers = published.front_proxy, published.headers
        self._tls.trust(bundle.pem for bundle in (client, proxy) if bundle.pem)
        if headers is not None and not options.believe_uid_headers:
            headers = replace(headers, uid_headers=())
        self.current = Trust(client.certificates, headers)


def _from_file(path: Path | None) -> _Bundle:
    if path is None:
        return _Bundle()
    try:
        pem = read_small_file(path)
    except OSError as error:
        raise ServingError(f"{path} cannot be read: {error.strerror or error}") from None
    return _Bundle.of(pem, str(path))


def _parse(data: Mapping[str, Any]) -> _Published:
    """Parse the members of the configmap; a missing one is empty.

    Raises:
        ServingError: naming the member that cannot be read.
    """

    def bundle(key: str) -> _Bundle:
        text = str(data.get(key) or "")
        return _Bundle.of(text.encode(), f"{_WHERE}: {key}") if text else _Bundle()

    def names(key: str) -> tuple[str, ...]:
        text = str(data.get(key) or "")
        try:
            return tuple(msgspec.json.decode(text, type=list[str])) if text else ()
        except msgspec.DecodeError as error:
            raise ServingError(f"{_WHERE}: {key}: must be a JSON list of strings: {error}") from None

    proxy = bundle("requestheader-client-ca-file")
    headers = RequestHeaders(
        proxy.certificates,
        names("requestheader-allowed-names"),
        names("requestheader-username-headers"),
        names("requestheader-group-headers"),
        names("requestheader-uid-headers"),
        names("requestheader-extra-headers-prefix"),
    )
    return _Published(bundle("client-ca-file"), proxy, headers if proxy.pem else None)


def _configmap_kind() -> Kind:
    kind = kind_by_plural("", "configmaps")
    assert kind is not None
    return kind


def _why(error: BaseException) -> str:
    if isinstance(error, ApiError):
        return f"{error.code} {error.reason}: {error.message}"
    return "no answer within 10 s" if isinstance(error, TimeoutError) else str(error)
