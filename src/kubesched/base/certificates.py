"""Certificates: issuing a throw-away pair, and loading a pair that is not in a file.

Only issuing needs the ``cryptography`` package. Callers: the HTTPS server of ``kubesched run`` and the embedded
cluster.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .extras import how_to_install

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

__all__ = ["IssuedPair", "load_pair", "self_signed"]


@dataclass(frozen=True, slots=True)
class IssuedPair:
    """Issued certificates, PEM: the certificate of the authority, the chain to send (leaf, then authority), and the key
    of the leaf.
    """

    ca: bytes
    chain: bytes
    key: bytes


def load_pair(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load a certificate chain and its key from memory. They pass through files, as the ssl module reads nothing else.

    Raises:
        ssl.SSLError: if they are not PEM, or do not belong together.
    """
    with tempfile.TemporaryDirectory() as directory:
        chain_file, key_file = Path(directory, "chain"), Path(directory, "key")
        chain_file.write_bytes(chain)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(chain_file, key_file, password="")  # no prompt for a password


def self_signed(
    now: float,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    *,
    days: int = 365,
    rsa_bits: int = 0,
) -> IssuedPair:
    """Issue a server certificate for ``hosts``, signed by a new authority. Valid from an hour ago for ``days``.

    The names of authority and certificate are ``HOST-ca@UNIXSECONDS`` and ``HOST@UNIXSECONDS``, with the first host.
    Keys are P-256, or RSA of ``rsa_bits`` (rules/serving §1: 2048). ``now`` is in seconds since the epoch.

    Raises:
        RuntimeError: if ``cryptography`` is not installed; the text says what to do instead.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - an optional package
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - an optional package
        from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415 - an optional package
    except ImportError:
        text = f"making certificates needs the package cryptography, which is not installed: {how_to_install('run')}"
        raise RuntimeError(f"{text}, or give certificate and key as files") from None

    moment = datetime.fromtimestamp(now, UTC)
    begin, end = moment - timedelta(hours=1), moment + timedelta(days=days)
    ca_key, key = _new_key(rsa_bits), _new_key(rsa_bits)
    authority = _named(f"{hosts[0]}-ca@{int(now)}")

    def certified(
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(ca_key, hashes.SHA256())

    ca = certified(
        authority,
        ca_key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(signs=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False),
    )
    leaf = certified(
        _named(f"{hosts[0]}@{int(now)}"),
        key.public_key(),
        (x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
    )
    pem = serialization.Encoding.PEM
    ca_pem = ca.public_bytes(pem)
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return IssuedPair(ca_pem, leaf.public_bytes(pem) + ca_pem, key_pem)


def _new_key(rsa_bits: int) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415 - an optional package

    if rsa_bits:
        return rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
    return ec.generate_private_key(ec.SECP256R1())


def _named(text: str) -> x509.Name:
    from cryptography import x509  # noqa: PLC0415 - an optional package

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Key usage of an authority, which signs certificates, or of a server."""
    from cryptography import x509  # noqa: PLC0415 - an optional package

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509  # noqa: PLC0415 - an optional package

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
