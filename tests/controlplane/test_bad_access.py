"""``kubesched run`` on bad access: what it says, what it tries again, its exit codes, and that no secret is shown."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from certificates import Authority, authority
from planes import PATIENCE, free_port

from kubesched.api.yamltext import to_yaml

SECRET = "t0p-secret-token"


def a_kubeconfig(folder: Path, url: str, ca: bytes | None = None) -> Path:
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(to_yaml(config, sort_keys=False))
    return path


class Run:
    """A running scheduler whose log is read as it is written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""

    async def says(self, pattern: str) -> str:
        """Read on until a line matches; the line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while raw := await self.process.stderr.readline():
                line = raw.decode()
                self.text += line
                if re.search(pattern, line):
                    return line
        raise AssertionError(f"it ended without saying {pattern!r}:\n{self.text}")

    async def ended(self) -> int:
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            self.text += (await self.process.stderr.read()).decode()
            return await self.process.wait()


@asynccontextmanager
async def scheduler(*flags: str) -> AsyncIterator[Run]:
    """``kubesched run``; at the end, nothing it wrote may show the token."""
    command = [sys.executable, "-m", "kubesched.cli", "run", "--secure-port", "0", *flags]
    process = await asyncio.create_subprocess_exec(
        *command,
        stderr=asyncio.subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if not key.startswith("KUBE")},
    )
    run = Run(process)
    try:
        yield run
        if process.returncode is None:
            process.terminate()
        await run.ended()
        assert SECRET not in run.text
        assert base64.b64encode(SECRET.encode()).decode() not in run.text
        assert "Traceback" not in run.text, run.text
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def api_server(
    status: int, message: str, folder: Path, *, ca: Authority, days: float = 1.0
) -> AsyncIterator[str]:
    """An HTTPS server that refuses everything; its address."""
    ca.write(folder, "server", "server", hosts=("localhost",), addresses=("127.0.0.1",), days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    async def refuse(request: web.BaseRequest) -> web.Response:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": message}
        return web.json_response({**body, "reason": "Forbidden" if status == 403 else "Unauthorized"}, status=status)

    runner = web.ServerRunner(web.Server(refuse))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    addresses: Any = runner.addresses
    try:
        yield f"https://127.0.0.1:{addresses[0][1]}"
    finally:
        await runner.cleanup()


FORBIDDEN = (
    'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope'
)
REFUSALS: dict[str, tuple[int, str, float, bool, str]] = {
    "forbidden verbs": (403, FORBIDDEN, 1.0, True, r"pods: .*is forbidden: User .* cannot list resource"),
    "a token that is refused": (401, "Unauthorized", 1.0, True, r"API server .*Unauthorized"),
    "an expired certificate": (403, "x", -1.0, True, r"API server .*certificate has expired"),
    "the wrong authority": (403, "x", 1.0, False, r"API server .*certificate verify failed"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_server_that_cannot_be_used_is_named_with_the_reason_and_tried_again(case: str, tmp_path: Path) -> None:
    status, message, days, trusted, pattern = REFUSALS[case]

    async def main() -> None:
        ca = authority("right")
        pem = ca.pem if trusted else authority("wrong").pem
        async with api_server(status, message, tmp_path, ca=ca, days=days) as url:
            file = a_kubeconfig(tmp_path, url, pem)
            async with scheduler("--kubeconfig", str(file), "-v", "10") as run:
                await run.says(pattern)
                await run.says(pattern)  # it goes on trying
                run.process.terminate()
                assert await run.ended() == 0, run.text
                assert "Requested to terminate, exiting" in run.text

    asyncio.run(main())


def test_a_refused_token_is_one_line_for_all_kinds_and_retries(tmp_path: Path) -> None:
    """There are some twenty kinds, each with a streamed list, a list in pages, and retries."""
    requests = 0

    async def refuse(request: web.BaseRequest) -> web.Response:
        nonlocal requests
        requests += 1
        return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)

    async def main() -> None:
        runner = web.ServerRunner(web.Server(refuse))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        addresses: Any = runner.addresses
        file = a_kubeconfig(tmp_path, f"http://127.0.0.1:{addresses[0][1]}")
        async with scheduler("--kubeconfig", str(file)) as run:
            line = await run.says("credentials are refused")
            assert "check token, client certificate or exec plugin of the kubeconfig" in line
            while requests < 150:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            run.process.terminate()
            await run.ended()
        await runner.cleanup()
        assert run.text.count("Unauthorized") == 1, run.text
        assert " cannot be streamed " not in run.text

    asyncio.run(main())


def test_an_unreachable_server_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        file = a_kubeconfig(tmp_path, f"http://127.0.0.1:{free_port()}")
        async with scheduler("--kubeconfig", str(file)) as run:
            line = await run.says(r"API server http://127.0.0.1:\d+: nothing accepts connections: ")
            assert "check the server address of the kubeconfig" in line
            assert "it is tried again" in line

    asyncio.run(main())


GOOD = "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:1\n"
HALF_WRITTEN = {
    "cut in a string": (GOOD + 'users:\n- name: "u', r"kubeconfig: line 8: is no YAML"),
    "without its context": (
        GOOD + f"users:\n- name: u\n  user: {{token: {SECRET}}}\ncurrent-context: x\n",
        r"kubeconfig: .*Expected object with name x in .*contexts list",
    ),
    "empty": ("", r"kubeconfig: is no kubeconfig"),
    "a certificate cut short": (
        GOOD + f"    certificate-authority-data: {base64.b64encode(b'-----BEGIN CERT').decode()}\n"
        f"users:\n- name: u\n  user: {{token: {SECRET}}}\n"
        "contexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n",
        r"kubeconfig: a certificate cannot be used",
    ),
}


@pytest.mark.parametrize("case", HALF_WRITTEN)
def test_a_half_written_kubeconfig_is_named_and_ends_the_process_with_1(case: str, tmp_path: Path) -> None:
    text, pattern = HALF_WRITTEN[case]

    async def main() -> None:
        file = tmp_path / "kubeconfig"
        file.write_text(text)
        async with scheduler("--kubeconfig", str(file)) as run:
            assert await run.ended() == 1
            assert re.search(pattern, run.text), run.text

    asyncio.run(main())


def test_a_kubeconfig_is_read_before_tls_settings_are_looked_at(tmp_path: Path) -> None:
    async def main() -> None:
        absent = str(tmp_path / "absent")
        async with scheduler("--kubeconfig", absent, "--tls-min-version", "VersionTLS99") as run:
            assert await run.ended() == 1
            assert f"stat {absent}: no such file or directory" in run.text
            assert "unknown tls version" not in run.text

    asyncio.run(main())
