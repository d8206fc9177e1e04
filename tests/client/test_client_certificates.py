"""Certificates, keys and authorities of an API server's access are read again when they change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from certificate_kit import Authority
from kubesched.api.kinds import PODS
from kubesched.base import followed_files
from kubesched.client import access
from kubesched.client.access import load_access, load_kubeconfig
from kubesched.client.http import HttpTransport

KUBECONFIG = """\
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'URL', certificate-authority: ca.crt}}]
users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]
"""


class ApiServer:
    """Answers every request with a pod that has the name in the client's certificate; ``refused`` names get 401."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.url = ""

    @asynccontextmanager
    async def listening(self, folder: Path, authority: Authority, port: int = 0) -> AsyncIterator[ApiServer]:
        cert, key = authority.write(folder, "server", "server", hosts=("127.0.0.1",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        context.load_verify_locations(cadata=authority.pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        addresses: Any = runner.addresses
        self.url = f"https://127.0.0.1:{addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        shown = request.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for name, value in part if name == "commonName"]
        name = names[0] if names else "anonymous"
        return web.json_response({"metadata": {"name": name}}, status=401 if name in self.refused else 200)


def config(folder: Path, url: str, authority: Authority) -> Path:
    (folder / "ca.crt").write_bytes(authority.pem)
    path = folder / "config"
    path.write_text(KUBECONFIG.replace("URL", url))
    return path


async def names(client: HttpTransport) -> tuple[str, str]:
    """The name that the server sees, for a read and for a write."""
    read = await client.get(PODS, "default", "p")
    return read.name, (await client.create(PODS, "default", {"metadata": {"name": "p"}})).name


def test_a_renewed_client_certificate_is_shown_on_the_next_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kept connections, which were made with the old one, are not used any more. A pair that is half replaced is not used yet."""
    monkeypatch.setattr(followed_files, "FOLLOW_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "kubesched.tls")
    ca = Authority()

    async def main() -> None:
        async with ApiServer().listening(tmp_path, ca) as server:
            ca.write(tmp_path, "client", "one")
            path = config(tmp_path, server.url, ca)
            async with HttpTransport.connect(await load_kubeconfig(path)) as client:
                assert await names(client) == ("one", "one")
                certificate, key = ca.issue("two")
                (tmp_path / "client.crt").write_bytes(certificate)
                assert await names(client) == ("one", "one")
                assert await names(client) == ("one", "one")
                [line] = [record.getMessage() for record in caplog.records]
                assert f"{tmp_path / 'client.crt'}, {tmp_path / 'client.key'} changed and cannot be used" in line
                assert "the certificate and the key do not belong together; what was read before stays in use" in line
                (tmp_path / "client.key").write_bytes(key)
                assert await names(client) == ("two", "two")
                (tmp_path / "client.key").unlink()
                assert await names(client) == ("two", "two")

    asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


@pytest.mark.parametrize("method", ["get", "create"])
def test_files_are_read_at_once_when_the_server_refuses_the_certificate(method: str, tmp_path: Path) -> None:
    ca = Authority()

    async def ask(client: HttpTransport) -> str:
        if method == "get":
            return (await client.get(PODS, "default", "p")).name
        return (await client.create(PODS, "default", {"metadata": {"name": "p"}})).name

    async def main() -> None:
        async with ApiServer().listening(tmp_path, ca) as server:
            ca.write(tmp_path, "client", "one")
            async with HttpTransport.connect(await load_kubeconfig(config(tmp_path, server.url, ca))) as client:
                assert await ask(client) == "one"
                ca.write(tmp_path, "client", "two")
                assert await ask(client) == "one"  # nothing is wrong with it yet
                server.refused.add("one")
                assert await ask(client) == "two"

    asyncio.run(main())


@pytest.mark.parametrize("in_cluster", [False, True])
def test_a_new_authority_is_trusted_after_the_connection_that_it_would_have_allowed(
    in_cluster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = Authority("before"), Authority("after")
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)

    async def main() -> None:
        server = ApiServer()
        async with server.listening(tmp_path, before):
            before.write(tmp_path, "client", "one")
            path = config(tmp_path, server.url, before)
            port = server.url.rpartition(":")[2]
            (tmp_path / "token").write_text("robot")
            environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
            client = HttpTransport.connect(await load_access("" if in_cluster else str(path), environ=environ))
            name = (await names(client))[0]
            assert name == ("anonymous" if in_cluster else "one")
        async with client, server.listening(tmp_path, after, int(port)):
            for call in (client.get(PODS, "default", "p"), client.create(PODS, "default", {"metadata": {"name": "p"}})):
                with pytest.raises(OSError, match="certificate verify failed"):
                    await call
            (tmp_path / "ca.crt").write_bytes(after.pem[:300])  # half of it
            with pytest.raises(OSError, match="certificate verify failed"):
                await client.get(PODS, "default", "p")
            (tmp_path / "ca.crt").write_bytes(after.pem)
            after.write(tmp_path, "client", "one")
            assert await names(client) == (name, name)

    asyncio.run(main())


def test_an_exec_plugins_certificate_is_used_and_the_plugin_is_not_run_for_every_request(tmp_path: Path) -> None:
    """It runs again when the server refuses what it gave."""
    ca = Authority()
    (tmp_path / "plugin.sh").write_text(
        f'echo x >> "{tmp_path}/runs"; cat "{tmp_path}/answer.json"\n', encoding="utf-8"
    )

    def answer(name: str) -> None:
        certificate, key = (part.decode().replace("\n", "\\n") for part in ca.issue(name))
        (tmp_path / "answer.json").write_text(
            '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": '
            f'{{"clientCertificateData": "{certificate}", "clientKeyData": "{key}"}}}}'
        )

    async def main() -> None:
        async with ApiServer().listening(tmp_path, ca) as server:
            path = config(tmp_path, server.url, ca)
            start = path.read_text().partition("users:")[0]
            arguments = f"{{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{tmp_path}/plugin.sh']}}"
            path.write_text(f"{start}users: [{{name: u, user: {{exec: {arguments}}}}}]\n")
            answer("one")
            async with HttpTransport.connect(await load_kubeconfig(path)) as client:
                assert await names(client) == ("one", "one")
                assert await names(client) == ("one", "one")
                answer("two")
                server.refused.add("one")
                assert await names(client) == ("two", "two")
        assert (tmp_path / "runs").read_text().count("x") == 2

    asyncio.run(main())
