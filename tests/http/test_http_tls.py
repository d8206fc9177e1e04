"""The embedded cluster's API server over TLS: its certificate is read again when it changes; few connections may wait."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from http_world import a_store, run

from certificate_kit import Authority
from kubesched.base import connections, followed_files
from kubesched.cluster.http import HttpServer


def trusting_all() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def common_name(server: HttpServer) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=trusting_all())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return str(x509.load_der_x509_certificate(shown).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def test_a_renewed_certificate_is_shown_to_new_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "FOLLOW_SECONDS", 0.0)
    authority = Authority()

    async def main() -> None:
        cert, key = authority.write(tmp_path, "server", "one", hosts=("localhost",))
        async with HttpServer(a_store(), tls_cert=cert, tls_key=key) as server:
            assert await common_name(server) == "one"
            new_cert, new_key = authority.issue("two", hosts=("localhost",))
            cert.write_bytes(new_cert)
            assert await common_name(server) == "one"  # the key of it is not there yet
            key.write_bytes(new_key)
            assert await common_name(server) == "two"

    run(main())


@pytest.mark.parametrize("shaken", [False, True], ids=["nothing was sent", "hands were shaken"])
def test_few_connections_over_tls_wait_although_many_watches_are_allowed(
    shaken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes 256 KiB; it was as many as without TLS, which is 6,000."""
    monkeypatch.setattr(connections, "_MOST_WAITING_TLS", 10)
    cert, key = Authority().write(tmp_path, "server", "one", hosts=("localhost",))

    async def main() -> None:
        options: dict[str, Any] = {"ssl": trusting_all(), "server_hostname": "localhost"} if shaken else {}
        async with HttpServer(a_store(), tls_cert=cert, tls_key=key) as server:
            port = int(server.url.rpartition(":")[2])
            opened = [await asyncio.open_connection("127.0.0.1", port, **options) for _ in range(50)]
            with suppress(ConnectionError):
                await asyncio.gather(*(reader.read() for reader, _ in opened[:40]))
            assert server.connections is not None
            assert server.connections.open <= 10
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting_all())
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for _, each in (*opened, (reader, writer)):
                each.close()

    run(main())
    assert "10 connections have no request under way, which is the limit; one had to be closed" in caplog.text
