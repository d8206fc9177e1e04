"""The certificate of the embedded cluster's API server is read again when it changes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from http_world import a_store, run

from certificate_kit import Authority
from kubesched.api import followed_files
from kubesched.cluster.http import HttpServer


async def common_name(server: HttpServer) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)
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
