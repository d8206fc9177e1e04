"""A certificate authority for tests: server and client certificates, expired ones too."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def key_pem() -> bytes:
    """A new RSA key, as PEM."""
    return _pem(_key())


@dataclass
class Authority:
    """Issues certificates. Make one with :func:`authority`."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(
        self,
        folder: Path,
        stem: str,
        name: str,
        *,
        organization: str = "",
        hosts: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        days: float = 1.0,
    ) -> None:
        """Issue into ``STEM.crt`` and ``STEM.key``: a server's for ``hosts``, a client's without any.

        Negative ``days`` give a certificate that has expired.
        """
        key = _key()
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(x509.Name(attributes), self.certificate.subject, key, days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{stem}.key").write_bytes(_pem(key))


def authority(name: str) -> Authority:
    """A new authority, valid around now."""
    key = _key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(True, False, True, False, False, True, False, False, False)
    builder = _builder(subject, subject, key, 1.0).add_extension(x509.BasicConstraints(True, None), critical=True)
    return Authority(key, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()))


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # TLS compares with the machine's clock
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
    )
