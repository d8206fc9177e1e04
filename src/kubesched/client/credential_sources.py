"""Files of a kubeconfig, and credentials from an exec plugin or from an issuer of OIDC tokens, read within limits.

The loader of kubernetes_asyncio reads all to their end, without a limit of bytes or time. The classes here take the
place of the loader's own and limit bytes and time. Caller: :mod:`.access`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, Final

from kubesched.base.extras import needing

from .kubeconfig_checks import read_kubeconfig
from .kubeconfig_library import without_its_client

with needing("reading a kubeconfig", "server"), without_its_client():
    import aiohttp
    from kubernetes_asyncio.config import kube_config
    from kubernetes_asyncio.config.config_exception import ConfigException
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode
    from kubernetes_asyncio.config.openid import OpenIDRequestor

__all__ = ["kubeconfig_classes"]

#: Lists of a kubeconfig that its files add to.
_KINDS: Final = ("clusters", "contexts", "users")
#: Seconds that a plugin may take. It may be waiting for a person to log in.
_PLUGIN_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 30.0
#: Most bytes of a plugin's output or an issuer's answer. Tokens and certificates have some kilobytes.
_MOST_BYTES: Final = 1 << 20


def kubeconfig_classes() -> tuple[Any, Any]:
    """Return the loader and the merger of kubeconfigs. The loader uses the classes of this module."""
    setattr(kube_config, ExecProvider.__name__, _Plugin)
    setattr(kube_config, OpenIDRequestor.__name__, _Issuer)
    return _Loader, _Merger


class _Merger(kube_config.KubeConfigMerger):
    """Reader of the files of a kubeconfig, which are regular, small and of the right form."""

    def load_config(self, path: str) -> None:
        """Add the entries of a file whose names are new.

        Raises:
            FormError: if the file cannot be used.
        """
        config = self.config_files[path] = read_kubeconfig(path)
        if self.config_merged is None:
            self.config_merged = ConfigNode(path, {**config, **{kind: [] for kind in _KINDS}}, path)
        merged = self.config_merged.value
        for kind in _KINDS:
            for entry in config.get(kind) or ():
                if all(known["name"] != entry["name"] for known in merged[kind]):
                    # The loader's messages have the node's name; its own names have the values, which are secrets.
                    merged[kind].append(ConfigNode(f"{kind[:-1]} {entry['name']!r}", entry, path))
        if "current-context" in config:
            merged["current-context"] = config["current-context"]


class _Loader(kube_config.KubeConfigLoader):
    """Loader whose context may have no user."""

    def set_active_context(self, context_name: str | None = None) -> None:
        """Choose a context; None is the current one.

        Raises:
            ConfigException: if it, or its cluster or user, is missing.
        """
        super().set_active_context(context_name)  # type: ignore[no-untyped-call]
        assert self._current_context is not None
        wanted = self._current_context["context"].safe_get("user")
        if self._user is None and wanted:
            raise ConfigException(f"{self._current_context.name}: user: there is no user {wanted!r}")
        if self._user is None:
            self._user = ConfigNode("user ''/user", {}, self._current_context.path)


class _Plugin(ExecProvider):
    """Program that prints an ExecCredential. Its stderr is dropped: it may hold a secret."""

    def __init__(self, exec_config: ConfigNode) -> None:
        super().__init__(exec_config)
        self._owner = exec_config.name.removesuffix("/user/exec")

    async def run(self, previous_response: str | None = None) -> Any:
        """Run the program and return the status of the ExecCredential.

        Raises:
            ConfigException: if the program fails, prints something else or too much, or does not end.
        """
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        try:
            process = await asyncio.create_subprocess_exec(
                *self.args,
                env={**self.env, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL, which may be in any argument
            fault = (
                "no such program" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", None) or error
            )
            raise ConfigException(f"{self._owner}: exec.command: {self.args[0][:80]!r}: {fault}") from None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                output = await _read(process.stdout, "exec: the plugin printed")
                code = await process.wait()
        except TimeoutError:
            raise ConfigException(f"exec: the plugin did not end within {_PLUGIN_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            raise ConfigException(f"exec: process returned {code}")
        return self._status(output)

    def _status(self, output: bytes) -> Any:
        try:
            data = json.loads(output)
        except (ValueError, RecursionError):
            raise ConfigException("exec: failed to decode process output") from None
        for key in ("apiVersion", "kind", "status"):
            if not isinstance(data, dict) or key not in data:
                raise ConfigException(f"exec: malformed response. missing key '{key}'")
        if data["apiVersion"] != self.api_version:
            raise ConfigException(f"exec: plugin api version does not match {self.api_version}")
        if not isinstance(data["status"], dict):
            raise ConfigException("exec: malformed response. 'status' is no mapping")
        return data["status"]


class _Issuer(OpenIDRequestor):
    """Issuer of OIDC tokens, whose answers are JSON.

    It receives a secret, so its certificate is checked against the named authority, or the system's. The loader would
    accept any certificate.
    """

    def _get_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._ssl_ca_cert))

    async def _get(self, client: aiohttp.ClientSession, *args: Any, **options: Any) -> Any:
        return await self._ask(client, "GET", *args, **options)

    async def _post(self, client: aiohttp.ClientSession, *args: Any, **options: Any) -> Any:
        return await self._ask(client, "POST", *args, **options)

    async def _ask(self, client: aiohttp.ClientSession, method: str, *args: Any, **options: Any) -> Any:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), client.request(method, *args, **options) as response:
                return json.loads(await _read(response.content, "oidc: the issuer's answer has"))
        except TimeoutError:
            raise ConfigException(f"oidc: the issuer has not answered within {_ANSWER_SECONDS:g} s") from None
        except (ValueError, RecursionError):
            raise ConfigException("oidc: the issuer's answer is no JSON") from None


async def _read(stream: asyncio.StreamReader | aiohttp.StreamReader, what: str) -> bytes:
    """Read a stream to its end.

    Raises:
        ConfigException: if it has too many bytes.
    """
    found = bytearray()
    while piece := await stream.read(1 << 16):
        found += piece
        if len(found) > _MOST_BYTES:
            raise ConfigException(f"{what} more than {_MOST_BYTES} bytes")
    return bytes(found)
