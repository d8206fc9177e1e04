"""A throw-away certificate authority and a server certificate, with the ``cryptography`` package if it is installed.

Nothing else needs that package: certificates of your own are given as files. Caller: the command line.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...api.times import Clock

__all__ = ["CertificateFiles", "make_certificates"]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the three files are: the authority's certificate, the server's, and the server's key."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(
    directory: str | Path, clock: Clock, hosts: Sequence[str] = ("localhost", "127.0.0.1"), *, days: int = 365
) -> CertificateFiles:
    """Make an authority, and a certificate for ``hosts``, valid from an hour ago for ``days``.

    Raises:
        RuntimeError: when ``cryptography`` is not installed, saying what to do instead.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - an optional package
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - an optional package
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - an optional package
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415 - an optional package
    except ImportError:
        text = "making certificates needs the package cryptography: install it, or give certificate and key as files"
        raise RuntimeError(text) from None

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.fromtimestamp(clock.now(), UTC)
    begin, end = now - timedelta(hours=1), now + timedelta(days=days)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = name(f"{hosts[0]}-ca@{int(now.timestamp())}")
    ca = (
        x509.CertificateBuilder()
        .subject_name(authority)
        .issuer_name(authority)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    cert = (
        x509.CertificateBuilder()
        .subject_name(name(hosts[0]))
        .issuer_name(authority)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    pem = serialization.Encoding.PEM
    files = CertificateFiles(place / "ca.crt", place / "server.crt", place / "server.key")
    files.ca.write_bytes(ca.public_bytes(pem))
    files.cert.write_bytes(cert.public_bytes(pem) + ca.public_bytes(pem))
    descriptor = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files
