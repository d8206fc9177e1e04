"""Extenders over HTTPS: authorities, names, client certificates, and settings that cannot be used."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from extender_kit import Server, a_pod, cluster, extenders_config

from kubesched.base import followed_files
from kubesched.base.certificates import IssuedPair, load_pair, self_signed
from kubesched.base.times import RealClock
from kubesched.scheduler.config import ConfigError
from kubesched.scheduler.extenders.http import http_extenders


def issued(*hosts: str) -> IssuedPair:
    return self_signed(RealClock().now(), hosts or ("localhost", "127.0.0.1"))


def serving(pair: IssuedPair, client_authority: bytes | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, pair.chain, pair.key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.decode())
    return context


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def filtering() -> Server:
    return Server(filter=lambda request: {"NodeNames": ["n2"]})


def outcome(context: ssl.SSLContext, tls: dict[str, Any] | None, **fields: Any) -> tuple[str, str]:
    """(node, message) of a pod for an extender behind this context."""

    async def main() -> tuple[str, str]:
        async with filtering().listening(context) as server:
            entry = {"urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": True, **fields}
            if tls is not None:
                entry["tlsConfig"] = tls
            async with cluster(entry) as found:
                found.create(a_pod("p"))
                await found.until(
                    lambda: found.pod("p").spec.node_name or found.condition("p").message, "the first attempt"
                )
                return found.pod("p").spec.node_name, found.condition("p").message

    return asyncio.run(main())


def test_the_servers_certificate_is_verified_with_the_given_authority() -> None:
    pair = issued()
    assert outcome(serving(pair), {"caData": text(pair.ca)}) == ("n2", "")


def test_an_authority_in_a_file(tmp_path: Path) -> None:
    pair = issued()
    (tmp_path / "ca.pem").write_bytes(pair.ca)
    assert outcome(serving(pair), {"caFile": str(tmp_path / "ca.pem")}, enableHTTPS=True)[0] == "n2"


def test_a_certificate_of_another_authority_fails_the_attempt() -> None:
    node, message = outcome(serving(issued()), {"caData": text(issued().ca)})
    assert node == ""
    assert message.startswith('Post "https://')
    assert "certificate verify failed" in message.lower()


def test_without_an_authority_and_without_settings_the_systems_authorities_count() -> None:
    node, message = outcome(serving(issued()), None)
    assert node == ""
    assert "certificate verify failed" in message.lower()


@pytest.mark.parametrize(("tls", "fields"), [({"insecure": True}, {}), (None, {"enableHTTPS": True})])
def test_verification_can_be_off(tls: Any, fields: Any) -> None:
    assert outcome(serving(issued("elsewhere")), tls, **fields)[0] == "n2"


def test_the_name_in_the_certificate_can_be_given() -> None:
    pair = issued("gpu-extender")
    node, message = outcome(serving(pair), {"caData": text(pair.ca)})
    assert node == ""
    assert "IP address mismatch" in message
    assert outcome(serving(pair), {"caData": text(pair.ca), "serverName": "gpu-extender"})[0] == "n2"


def client_certificate(common_name: str = "kube-scheduler") -> tuple[bytes, bytes]:
    """A certificate for clients that is its own authority, and its key, as PEM."""
    now = datetime.fromtimestamp(RealClock().now(), UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


@pytest.mark.parametrize("form", ["data", "files"])
def test_a_client_certificate_is_shown(form: str, tmp_path: Path) -> None:
    """The server only talks to holders of a certificate that it trusts."""
    pair, (certificate, key) = issued(), client_certificate()
    tls = {"caData": text(pair.ca), "certData": text(certificate), "keyData": text(key)}
    if form == "files":
        (tmp_path / "cert").write_bytes(certificate)
        (tmp_path / "key").write_bytes(key)
        tls = {"caData": text(pair.ca), "certFile": str(tmp_path / "cert"), "keyFile": str(tmp_path / "key")}
    assert outcome(serving(pair, client_authority=certificate), tls) == ("n2", "")


def test_a_client_without_a_certificate_is_turned_away() -> None:
    pair, (certificate, _) = issued(), client_certificate()
    node, message = outcome(serving(pair, client_authority=certificate), {"caData": text(pair.ca)})
    assert node == ""
    assert message.startswith('Post "https://')


def test_a_certificate_that_is_renewed_in_its_files_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "FOLLOW_SECONDS", 0.0)
    pair, before, after = issued(), client_certificate("before"), client_certificate("after")

    def write(certificate: bytes, key: bytes) -> None:
        (tmp_path / "cert").write_bytes(certificate)
        (tmp_path / "key").write_bytes(key)

    async def main() -> None:
        tls = {"caData": text(pair.ca), "certFile": str(tmp_path / "cert"), "keyFile": str(tmp_path / "key")}
        write(*before)
        async with filtering().listening(serving(pair, client_authority=before[0] + after[0])) as server:
            entry = {"urlPrefix": server.url, "filterVerb": "filter", "nodeCacheCapable": True, "tlsConfig": tls}
            async with cluster(entry) as found:
                found.create(a_pod("p"))
                await found.bound("p")
                write(*after)
                found.create(a_pod("q"))
                await found.bound("q")
            subjects = [dict(part[0] for part in shown["subject"]) for shown in server.certificates]
            assert [subject["commonName"] for subject in subjects] == ["before", "after"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (
            {"insecure": True, "caData": text(b"x")},
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        ({"caFile": "/dev/zero"}, "tlsConfig: caFile: open /dev/zero: is no regular file"),
        ({"caFile": "/nonexistent/ca"}, "tlsConfig: caFile: open /nonexistent/ca: no such file or directory"),
        ({"caData": text(b"nonsense")}, "the authority (caData or caFile) is no PEM certificate"),
        ({"certData": text(b"x")}, "a client certificate and its key are needed together"),
        ({"certData": text(b"x"), "keyData": text(b"y")}, "the client certificate and its key cannot be used"),
    ],
)
def test_settings_that_cannot_be_used(tls: dict[str, Any], message: str) -> None:
    config = extenders_config({"urlPrefix": "https://gpu/", "tlsConfig": tls})
    with pytest.raises(ConfigError) as caught:
        http_extenders(config.extenders)
    assert str(caught.value).startswith("couldn't build extenders: ")
    assert message in str(caught.value)
