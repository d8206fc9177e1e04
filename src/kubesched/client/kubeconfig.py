"""How to reach a cluster, read from a kubeconfig: address, authority, and one of token, certificate or exec plugin.

A small loader for what most files hold. Caller: the command line, on the way to :class:`.http.HttpTransport`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..api.yamltext import TextError, read_single

__all__ = ["ClusterAccess", "ExecPlugin", "KubeconfigError", "load_kubeconfig"]


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used; the message says what is missing where."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    api_version: str

    async def token(self) -> str:
        """Run it; the bearer token it prints.

        Raises:
            KubeconfigError: when it fails, or prints no token.
        """
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **dict(self.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                self.command, *self.args, env=environment, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise KubeconfigError(f"exec plugin {self.command} cannot be run: {error}") from None
        out, _ = await process.communicate()
        if process.returncode:
            raise KubeconfigError(f"exec plugin {self.command} ended with exit code {process.returncode}")
        try:
            token = msgspec.json.decode(out)["status"]["token"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise KubeconfigError(f"exec plugin {self.command} printed no status.token") from None
        return str(token)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Where a cluster is and how to be let in. ``ssl`` is None for plain HTTP."""

    url: str
    namespace: str = "default"
    token: str | None = None
    token_file: Path | None = None
    ssl: ssl.SSLContext | None = None
    exec_plugin: ExecPlugin | None = None


def load_kubeconfig(path: str | Path | None = None, context: str = "") -> ClusterAccess:
    """The access a kubeconfig describes; without ``path`` ``$KUBECONFIG`` or ``~/.kube/config``.

    Raises:
        KubeconfigError: for a file that cannot be read, and for parts that are missing or not supported.
    """
    place = Path(path or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    try:
        data = read_single(place.read_bytes(), "kubeconfig")
    except OSError as error:
        raise KubeconfigError(f"{place}: cannot be read: {error}") from None
    except TextError as error:
        raise KubeconfigError(error.in_file(str(place))) from None
    if not isinstance(data, dict):
        raise KubeconfigError(f"{place}: is no kubeconfig")
    name = context or data.get("current-context") or ""
    chosen = _entry(data, "contexts", "context", name, place)
    cluster = _entry(data, "clusters", "cluster", str(chosen.get("cluster") or ""), place)
    user = _entry(data, "users", "user", str(chosen["user"]), place) if chosen.get("user") else {}
    url = cluster.get("server")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise KubeconfigError(f"{place}: cluster {chosen.get('cluster')!r} has no server address")
    for unsupported in ("auth-provider", "username"):
        if user.get(unsupported):
            text = f"{place}: user {chosen.get('user')!r}: {unsupported} is not supported; use a token, a client certificate or exec"
            raise KubeconfigError(text)
    token_file = user.get("tokenFile")
    return ClusterAccess(
        url.rstrip("/"),
        str(chosen.get("namespace") or "default"),
        user.get("token") or None,
        place.parent / token_file if token_file else None,
        _tls(cluster, user, place) if url.startswith("https://") else None,
        _exec(user.get("exec"), place),
    )


def _entry(data: Mapping[str, Any], section: str, member: str, name: str, place: Path) -> dict[str, Any]:
    for item in data.get(section) or ():
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(member), dict):
            found: dict[str, Any] = item[member]
            return found
    raise KubeconfigError(f"{place}: there is no {member} named {name!r}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], place: Path) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority", place)
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = _pem(user, "client-certificate", place), _pem(user, "client-key", place)
        if certificate and key:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{place}: a certificate cannot be used: {error}") from None
    return context


def _pem(data: Mapping[str, Any], name: str, place: Path) -> bytes:
    """The bytes of ``name-data`` (base64), or of the file ``name``."""
    inline = data.get(f"{name}-data")
    try:
        if inline:
            return base64.b64decode(inline, validate=False)
        if data.get(name):
            return (place.parent / str(data[name])).read_bytes()
    except (OSError, binascii.Error, ValueError) as error:
        raise KubeconfigError(f"{place}: {name} cannot be read: {error}") from None
    return b""


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and key from memory; the ssl module takes files only."""
    with tempfile.TemporaryDirectory() as directory:
        cert_file, key_file = Path(directory, "cert"), Path(directory, "key")
        cert_file.write_bytes(certificate)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(cert_file, key_file)


def _exec(data: Any, place: Path) -> ExecPlugin | None:
    if not isinstance(data, dict):
        return None
    if not data.get("command"):
        raise KubeconfigError(f"{place}: exec has no command")
    return ExecPlugin(
        str(data["command"]),
        tuple(str(item) for item in data.get("args") or ()),
        tuple((str(item.get("name")), str(item.get("value"))) for item in data.get("env") or ()),
        str(data.get("apiVersion") or "client.authentication.k8s.io/v1"),
    )
