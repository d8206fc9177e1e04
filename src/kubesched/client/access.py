"""Access to an API server: its address and credentials, from a kubeconfig, from inside a cluster, or by an address.

The loader of kubernetes_asyncio reads kubeconfigs (several files, contexts, inline data, exec plugins, OIDC, proxies).
It is imported only when it is needed. Callers: the command line, on the way to :class:`.http.HttpTransport`.

    kubeconfig given          -> that file, its current context or the one named
    only a server address     -> that address, nothing else
    neither, inside a cluster -> the service account
    neither, outside          -> AccessError

Token files are read again every minute; certificates, keys and authorities when they change.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import logging
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from kubesched.base.followed_files import FollowedContext
from kubesched.base.small_file import check_small_files, read_small_file

from .kubeconfig_checks import FormError, check_files, check_token

__all__ = ["AccessError", "ClusterAccess", "Credentials", "default_kubeconfig", "load_access", "load_kubeconfig"]

_log = logging.getLogger("kubesched.client")

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Seconds after which a token file is read again.
TOKEN_SECONDS: Final = 60.0

_NOTHING: Final = (
    "invalid configuration: no configuration has been provided; this process is not in a pod of a cluster: name a kubeconfig with "
    "--kubeconfig, or as clientConnection.kubeconfig in the file of --config"
)


class AccessError(ValueError):
    """The given access cannot be used. The message names the file and the fault. It holds no secrets."""


class Credentials(Protocol):
    """Source of the Authorization header of requests."""

    async def header(self) -> str | None:
        """Return the header's value for a request made now; None if there is no header.

        Raises:
            AccessError: if the value cannot be obtained.
        """
        ...

    def rejected(self) -> None:
        """Mark the value as refused (401): the next header must be a new one, if there is a way to get one."""
        ...


class _Fixed:
    """Token (or basic authentication) that never changes."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        return self._header

    def rejected(self) -> None:
        """Do nothing: there is no other token."""


class TokenFile:
    """Token in a file that another process refreshes, as the kubelet does for service accounts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: str | None = None
        self._read = float("-inf")

    async def header(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now - self._read > TOKEN_SECONDS:
            try:
                token = read_small_file(self._path).decode().strip()
                if fault := check_token(token):
                    raise ValueError(fault)
            except (OSError, ValueError) as error:
                text = f"{self._path}: the token cannot be read: {_reason(error)}"
                if self._header is None:
                    raise AccessError(text) from None
                _log.error("%s; what was read before stays in use", text)
            else:
                self._header = f"Bearer {token}"
            self._read = now
        return self._header

    def rejected(self) -> None:
        self._read = float("-inf")


class _Loaded:
    """Credentials that the loader refreshes: exec plugins and OIDC."""

    def __init__(self, loader: Any, source: str) -> None:
        self._loader = loader
        self._source = source
        self._lock = asyncio.Lock()
        self._stale = False

    async def header(self) -> str | None:
        async with self._lock:
            if self._stale:
                self._loader.__dict__.pop("exec_plugin_expiry", None)
                self._stale = False
            elif "exec_plugin_expiry" not in self._loader.__dict__ and self._is_loaded:
                return self._token  # a token without an expiry is valid until a server refuses it
            try:
                await self._loader._load_authentication()
            except Exception as error:
                raise AccessError(f"{self._source}: {_without_output(error)}") from None
            return self._token

    @property
    def _is_loaded(self) -> bool:
        """True if the plugin was asked already. The plugin may have returned a certificate instead of a token."""
        return not {"token", "cert_file"}.isdisjoint(self._loader.__dict__)

    @property
    def _token(self) -> str | None:
        if "token" not in self._loader.__dict__:
            return None
        header = str(self._loader.token)
        if fault := check_token(header.removeprefix("Bearer ")):
            raise AccessError(f"{self._source}: the token that was obtained cannot be used: {fault}")
        return header

    def rejected(self) -> None:
        self._stale = True


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Address of a cluster and the credentials for it. ``ssl`` is None for plain HTTP; ``proxy`` is a URL or empty.

    ``server_name`` is the name that the server's certificate must have. Empty: the name in the address.
    """

    url: str
    namespace: str = "default"
    credentials: Credentials = field(default_factory=lambda: _Fixed(None))
    ssl: FollowedContext | None = None
    proxy: str = ""
    server_name: str = ""


def default_kubeconfig() -> str:
    """Return ``$KUBECONFIG``, which may name several files, or ``~/.kube/config``."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


async def load_access(
    kubeconfig: str = "", master: str = "", *, environ: Mapping[str, str] | None = None
) -> ClusterAccess:
    """Resolve the scheduler's flags ``--kubeconfig`` and ``--master`` to an access (rules/configuration §7).

    Raises:
        AccessError: if neither flag nor the environment leads to a server.
    """
    if kubeconfig:
        return await load_kubeconfig(kubeconfig, server=master)
    if master:
        url = _url(master, "--master")
        return ClusterAccess(url, ssl=_tls(url, "--master", lambda: (None, None, None)))
    return _in_cluster(os.environ if environ is None else environ)


async def load_kubeconfig(path: str | Path | None = None, context: str = "", *, server: str = "") -> ClusterAccess:
    """Read the access that a kubeconfig describes. ``path`` defaults to the usual file; ``server`` overrides the
    address.

    Raises:
        AccessError: if the file cannot be read, or a part of it is missing or not supported.
    """
    # Imported only here: a process in a pod of the cluster reads no kubeconfig.
    from .credential_sources import kubeconfig_classes  # noqa: PLC0415

    KubeConfigLoader, KubeConfigMerger = kubeconfig_classes()  # noqa: N806

    source = os.fspath(path) if path else default_kubeconfig()
    places = _files(source)
    # The loader logs the stderr of an exec plugin, which may be a secret. Every failure is reported here instead.
    logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)
    try:
        config = KubeConfigMerger(source).config
        loader = KubeConfigLoader(config, active_context=context or None, config_base_path=None)
        check_files(loader)
        settings = _Settings()
        await loader.load_and_set(settings)
    except FormError as error:
        raise AccessError(str(error)) from None
    except Exception as error:
        raise AccessError(f"{source}: {_without_output(error)}") from None
    url = _url(server or settings.host, source)
    return ClusterAccess(
        url,
        str((loader.current_context or {}).get("context", {}).get("namespace") or "default"),
        _credentials(loader, settings, source, places),
        _tls(url, source, lambda: _tls_files(loader, settings), verify=settings.verify_ssl),
        settings.proxy or "",
        settings.tls_server_name or "",
    )


def _files(source: str) -> list[Path]:
    places = [Path(part).expanduser() for part in source.split(os.pathsep) if part]
    if not any(os.path.exists(place) for place in places):  # noqa: PTH110 - it raises no error for a too long name
        raise AccessError(f"stat {source}: no such file or directory")
    return places


class _Settings:
    """Attributes of a client configuration that are used here. The loader fills them in."""

    def __init__(self) -> None:
        self.api_key: dict[str, str] = {}
        self.host = ""
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.tls_server_name: str | None = None
        self.proxy: str | None = None


def _credentials(loader: Any, settings: _Settings, source: str, places: list[Path]) -> Credentials:
    user = loader._user.value if loader._user is not None else {}
    if isinstance(user, dict) and user.get("tokenFile") and not user.get("token") and "exec" not in user:
        base = Path(loader._user.path).parent if loader._user.path else places[0].parent
        return TokenFile(base / str(user["tokenFile"]))
    if isinstance(user, dict) and ("exec" in user or "auth-provider" in user):
        return _Loaded(loader, source)
    return _Fixed(settings.api_key.get("BearerToken"))


#: File names of the authority, the client certificate and its key.
_TlsFiles = tuple[str | None, str | None, str | None]


def _tls_files(loader: Any, settings: _Settings) -> _TlsFiles:
    """Return the present file names: an exec plugin may have written other files since the last call."""
    found = loader.__dict__
    return (
        settings.ssl_ca_cert,
        found.get("cert_file") or settings.cert_file,
        found.get("key_file") or settings.key_file,
    )


def _tls(url: str, source: str, files: Callable[[], _TlsFiles], *, verify: bool = True) -> FollowedContext | None:
    """Return the context for an HTTPS server, which follows its files; None for plain HTTP."""
    if not url.startswith("https://"):
        return None

    def make() -> ssl.SSLContext:
        ca, cert, key = files()
        check_small_files((ca, cert, key))
        try:
            context = ssl.create_default_context(cafile=ca)
        except ssl.SSLError as error:
            raise ValueError(f"certificate-authority: {_reason(error)}") from None
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert and key:
            try:
                context.load_cert_chain(cert, key, password="")  # no prompt for a password
            except ssl.SSLError as error:
                if error.reason == "KEY_VALUES_MISMATCH":
                    raise
                raise ValueError(f"client-certificate or client-key: {_reason(error)}") from None
        return context

    try:
        return FollowedContext(make, files)
    except (OSError, ValueError) as error:
        raise AccessError(f"{source}: a certificate cannot be used: {_reason(error)}") from None


def _in_cluster(environ: Mapping[str, str]) -> ClusterAccess:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise AccessError(_NOTHING)
    authority, token = SERVICE_ACCOUNT / "ca.crt", SERVICE_ACCOUNT / "token"
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    for file in (authority, token):
        if not file.is_file():
            raise AccessError(f"open {file}: no such file or directory")
    try:
        file = SERVICE_ACCOUNT / "namespace"
        namespace = read_small_file(file).decode().strip() if file.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"{file}: cannot be read: {_reason(error)}") from None
    context = _tls(url, str(authority), lambda: (str(authority), None, None))
    return ClusterAccess(url, namespace or "default", TokenFile(token), context)


def _url(address: str, source: str) -> str:
    """Return the address with a scheme. A bare host gets http, as upstream does for --master."""
    if not address:
        raise AccessError(f"{source}: the cluster has no server address")
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_address = is_address and url.isascii() and not any(letter.isspace() for letter in url)
    except ValueError:  # an invalid port, or half an IPv6 address
        is_address = False
    if not is_address:
        shown = re.sub("//[^/]*@", "//", address)[:80]  # a password may be before the @
        raise AccessError(f"{source}: {shown!r} is no server address: it must be http:// or https:// and a host")
    return url.rstrip("/")


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _without_output(error: Exception) -> str:
    """Return the loader's message as one line, without the output of an exec plugin: it may be a secret."""
    if isinstance(error, AssertionError | AttributeError | TypeError | KeyError):
        return "is no kubeconfig: a part is missing or has the wrong form"
    if isinstance(error, UnicodeError | binascii.Error | json.JSONDecodeError):  # files were checked before
        return "auth-provider.config.id-token: is no JSON Web Token"
    text = str(error)
    if text.startswith("Invalid kube-config file. Expected key current-context"):
        return "is no kubeconfig: current-context: expected a text, got nothing"
    if text.startswith("exec: process returned"):
        return text.partition(".")[0]
    if text.startswith("exec: failed to decode"):
        return "exec: the plugin printed no ExecCredential"
    return text.splitlines()[0][:300]
