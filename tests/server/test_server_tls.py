"""The listener: certificates given and made, followed as they change, and what a connection is offered."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from server_kit import StoppedClock, a_client, eventually, run, running, serving, trusting_all

from certificate_kit import NOW, Authority
from kubesched.api.kinds import kind_by_plural
from kubesched.base.tasks import TaskCrashedError
from kubesched.cluster.store import InProcessClient, Store
from kubesched.scheduler.server import AuthenticationOptions, ServingError, ServingOptions, SniPair
from kubesched.scheduler.server.trust import CONFIGMAP, NAMESPACE


def the_chain(found: ssl.SSLObject) -> x509.Certificate:
    der = found.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def test_without_files_a_certificate_is_made_in_memory() -> None:
    async def main() -> None:
        async with running(ServingOptions("127.0.0.1", 0)) as client:
            leaf = the_chain(await client.shown())
            assert leaf.subject.rfc4514_string() == f"CN=localhost@{int(NOW.timestamp())}"
            assert leaf.issuer.rfc4514_string() == f"CN=localhost-ca@{int(NOW.timestamp())}"
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.DNSName) == ["localhost"]
            assert [str(item) for item in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
            usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
            key: Any = leaf.public_key()
            assert key.key_size == 2048
            begin = datetime.fromtimestamp(int(NOW.timestamp()), UTC) - timedelta(hours=1)
            assert leaf.not_valid_before_utc == begin
            assert leaf.not_valid_after_utc == begin + timedelta(days=365, hours=1)

    run(main())


def test_a_cert_dir_keeps_what_was_made(tmp_path: Path) -> None:
    async def main() -> None:
        options = ServingOptions("127.0.0.1", 0, cert_dir=tmp_path / "pki")
        async with running(options) as client:
            first = the_chain(await client.shown()).serial_number
        assert (tmp_path / "pki" / "kube-scheduler.key").stat().st_mode & 0o077 == 0
        assert (tmp_path / "pki" / "kube-scheduler.crt").read_text().count("BEGIN CERTIFICATE") == 2
        async with running(options) as client:
            assert the_chain(await client.shown()).serial_number == first

    run(main())


def test_tls_1_2_at_least_and_http_1_1(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            assert (await client.shown(alpn=("h2", "http/1.1"))).selected_alpn_protocol() == "http/1.1"
            assert (await client.shown()).version() == "TLSv1.3"
        async with running(serving(tmp_path, min_tls_version="VersionTLS13")) as client:
            context = trusting_all()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", client.server.port, ssl=context, server_hostname="x")
        ciphers = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
        async with running(serving(tmp_path, cipher_suites=ciphers, curve_preferences=(24,))) as client:
            context = trusting_all()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            _, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=context, server_hostname="x")
            assert writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
            writer.close()

    run(main())


def test_certificates_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority()
        exact = authority.write(tmp_path, "exact", "exact", hosts=("ignored.example",))
        wild = authority.write(tmp_path, "wild", "wild", hosts=("x",))
        own = authority.write(tmp_path, "own", "own", hosts=("own.example", "a.wild.example", "b.wild.example"))
        pairs = (
            SniPair(*exact, ("a.wild.example",)),
            SniPair(*wild, ("*.wild.example",)),
            SniPair(*own),
        )
        async with running(serving(tmp_path, sni=pairs)) as client:
            shown = {
                name: await client.common_name(name)
                for name in ("a.wild.example", "c.wild.example", "b.wild.example", "own.example", "other", "A.B.c")
            }
            assert shown == {
                "a.wild.example": "exact",  # a pattern given beats a name in a certificate
                "c.wild.example": "wild",
                "b.wild.example": "own",
                "own.example": "own",
                "other": "server",
                "A.B.c": "server",
            }

    run(main())


def test_changed_files_are_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        old, new = Authority("old"), Authority("new")
        ca = tmp_path / "ca.crt"
        ca.write_bytes(old.pem)
        before = old.write(tmp_path, "before", "root", "system:masters")
        after = new.write(tmp_path, "after", "root", "system:masters")
        authentication = AuthenticationOptions(client_ca_file=ca, skip_lookup=True)
        async with running(serving(tmp_path), authentication=authentication) as client:
            assert not client.server.reload()
            assert (await client("/metrics", cert=before)).status == 200
            Authority().write(tmp_path, "server", "renewed", hosts=("localhost",))
            ca.write_bytes(new.pem)
            assert client.server.reload()
            assert await client.common_name() == "renewed"
            assert (await client("/metrics", cert=after)).status == 200
            with pytest.raises(aiohttp.ClientError):
                await client("/metrics", cert=before)
            # Half of a rotation: a certificate whose key is not there yet, an authority cut short.
            Authority().write(tmp_path, "other", "other", hosts=("localhost",))
            (tmp_path / "server.crt").write_bytes((tmp_path / "other.crt").read_bytes())
            ca.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
            assert not client.server.reload()
            assert await client.common_name() == "renewed"
            assert (await client("/metrics", cert=after)).status == 200

    run(main())
    assert f"{tmp_path / 'server.crt'}: the certificate and key cannot be used" in caplog.text
    assert f"{tmp_path / 'ca.crt'}: there is no PEM certificate in it" in caplog.text


def test_files_are_checked_from_time_to_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path, reload_seconds=0.01)) as client:
            Authority().write(tmp_path, "server", "renewed", hosts=("localhost",))

            async def renewed() -> bool:
                return await client.common_name() == "renewed"

            await eventually(renewed)

    run(main())


def test_a_certificate_of_an_authority_that_is_gone_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    async def main() -> None:
        old, new = Authority("old"), Authority("new")
        ca = tmp_path / "ca.crt"
        ca.write_bytes(old.pem)
        context = trusting_all()
        context.load_cert_chain(*old.write(tmp_path, "before", "root", "system:masters"))
        authentication = AuthenticationOptions(client_ca_file=ca, skip_lookup=True)
        async with running(serving(tmp_path), authentication=authentication) as client:
            url = f"https://127.0.0.1:{client.server.port}/metrics/slis"
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
                statuses = []
                for content in (old.pem, new.pem):
                    ca.write_bytes(content)
                    client.server.reload()
                    async with session.get(url) as response:
                        await response.read()
                        statuses.append(response.status)
                assert statuses == [200, 401]

    run(main())


# -- authorities from the configmap ------------------------------------------------------------------------------


CONFIGMAPS = kind_by_plural("", "configmaps")
assert CONFIGMAPS is not None


def a_configmap(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": CONFIGMAP}, "data": {key.replace("_", "-"): text for key, text in data.items()}}


def test_authorities_come_from_the_configmap_and_follow_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert CONFIGMAPS is not None
    kind = CONFIGMAPS

    async def main() -> None:
        first, second, proxies = Authority("first"), Authority("second"), Authority("proxies")
        one = first.write(tmp_path, "one", "root", "system:masters")
        two = second.write(tmp_path, "two", "root", "system:masters")
        proxy = proxies.write(tmp_path, "proxy", "front")
        store = Store(StoppedClock(), random=Random(1))
        api = InProcessClient(store)
        await api.create(kind, NAMESPACE, a_configmap(client_ca_file=first.pem.decode()))
        async with running(serving(tmp_path), authentication=AuthenticationOptions(), api=api) as client:
            assert (await client("/metrics/slis", cert=one)).status == 200
            await api.update(
                kind,
                NAMESPACE,
                CONFIGMAP,
                a_configmap(
                    client_ca_file=second.pem.decode(),
                    requestheader_client_ca_file=proxies.pem.decode(),
                    requestheader_allowed_names='["front"]',
                    requestheader_username_headers='["X-Remote-User"]',
                    requestheader_group_headers='["X-Remote-Group"]',
                    requestheader_extra_headers_prefix='["X-Remote-Extra-"]',
                ),
            )

            async def status(cert: tuple[Path, Path], *headers: tuple[str, str]) -> int:
                try:
                    return (await client("/metrics/slis", cert=cert, headers=headers)).status
                except aiohttp.ClientError:
                    return 0

            async def second_counts() -> bool:
                return await status(two) == 200

            def logged(text: str) -> Callable[[], Awaitable[bool]]:
                async def check() -> bool:
                    return text in caplog.text

                return check

            await eventually(second_counts)
            assert await status(one) == 0
            as_master = [("X-Remote-User", "anyone"), ("X-Remote-Group", "system:masters")]
            assert await status(proxy, *as_master) == 200
            # Unreadable content is logged, and the previous content stays in force.
            broken = a_configmap(client_ca_file=first.pem.decode(), requestheader_allowed_names="front")
            await api.update(kind, NAMESPACE, CONFIGMAP, broken)
            await eventually(logged("must be a JSON list of strings"))
            assert await status(two) == 200
            await api.delete(kind, NAMESPACE, CONFIGMAP)
            await eventually(logged("was deleted"))
            assert await status(two) == 200

    with caplog.at_level(logging.INFO):
        run(main())
    assert f"configmap/{CONFIGMAP} in {NAMESPACE}: requestheader-allowed-names: must be a JSON list" in caplog.text


def test_a_missing_configmap_is_tolerated_or_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        api = InProcessClient(Store(StoppedClock(), random=Random(1)))
        async with running(serving(tmp_path), authentication=AuthenticationOptions(), api=api) as client:
            assert (await client("/healthz")).status == 200
        strict = AuthenticationOptions(tolerate_lookup_failure=False)
        with pytest.raises(ServingError, match=f"unable to load configmap/{CONFIGMAP} in {NAMESPACE}: 404 NotFound"):
            async with running(serving(tmp_path), authentication=strict, api=api):
                pass

    run(main())
    assert f"configmap/{CONFIGMAP} in {NAMESPACE} cannot be read: 404 NotFound" in caplog.text


# -- what cannot be set up ---------------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("a certificate without a key", {"key_file": None}, "must be specified together"),
    ("a file without an end", {"cert_file": Path("/dev/zero")}, "/dev/zero cannot be read: is no regular file"),
    ("a missing file", {"cert_file": Path("/nonexistent/x.crt")}, "/nonexistent/x.crt cannot be read: No such file"),
    ("an unknown version", {"min_tls_version": "VersionTLS9"}, 'unknown tls version "VersionTLS9": use one of'),
    ("an unknown cipher", {"cipher_suites": ("TLS_NO",)}, "Cipher suite TLS_NO not supported or doesn't exist"),
    ("an unknown curve", {"curve_preferences": (99,)}, "curve 99 is not supported: use one of 23, 24, 25, 29"),
    ("no address", {"bind_address": "localhost"}, "bind-address: 'localhost' is not an IP address"),
]


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_cannot_be_used_is_refused_in_words(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    from dataclasses import replace

    async def main() -> None:
        with pytest.raises(ServingError) as caught:
            async with running(replace(serving(tmp_path), **change)):
                pass
        assert message in str(caught.value)

    run(main())


def test_a_taken_port_is_refused_in_upstreams_words(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ServingError) as caught:
                async with running(ServingOptions("127.0.0.1", port, cert_dir=tmp_path)):
                    pass
            where = f"127.0.0.1:{port}"
            text = f"failed to create listener: failed to listen on {where}: listen tcp {where}: bind: address already in use"
            assert str(caught.value) == text

    run(main())


def test_connections_to_a_bound_port_wait_until_the_server_starts(tmp_path: Path) -> None:
    async def main() -> None:
        client = a_client(serving(tmp_path))
        client.server.bind()
        port = client.server.port
        assert port != 0
        waiting = asyncio.create_task(client("/healthz"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        async with client.server:
            assert (await waiting).status == 200
            assert client.server.port == port

    run(main())


def test_a_task_that_dies_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        client = a_client(serving(tmp_path, reload_seconds=0.01))

        def broken() -> bool:
            raise RuntimeError("out of order")

        monkeypatch.setattr(client.server, "reload", broken)
        with pytest.raises(TaskCrashedError, match="task serving-files failed: RuntimeError: out of order"):
            await client.server.run()
        with pytest.raises(aiohttp.ClientConnectorError):
            await client("/healthz")

    run(main())


def test_stopping_lets_requests_end_and_leaves_no_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with running(serving(tmp_path)) as client:
            await client("/healthz")
            await client.server.stop()
            with pytest.raises(aiohttp.ClientConnectorError):
                await client("/healthz")
        assert asyncio.all_tasks() == before

    with caplog.at_level(logging.INFO):
        run(main())
    assert "[graceful-termination] secure server has stopped listening" in caplog.text
    assert "[graceful-termination] secure server is exiting" in caplog.text


def test_a_connection_that_sends_no_request_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.server.server._READ_HEADER_SECONDS", 0.05)

    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=trusting_all())
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            assert await reader.read() == b""
            writer.close()
            # One that did send a request in time stays open.
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=trusting_all())
            for _ in range(2):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")
                await asyncio.sleep(0.1)
            writer.close()

    run(main())


def test_headers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            fine = await client("/healthz", headers=[("X-Long", "a" * 500_000)])
            assert fine.status == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=trusting_all())
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1_100_000 + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()

    run(main())


def test_several_curves_are_not_silently_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a_client(serving(tmp_path, curve_preferences=(29, 23)))
    assert "tls-curve-preferences: only one curve can be chosen" in caplog.text
