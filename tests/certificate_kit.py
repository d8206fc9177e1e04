"""A certificate authority for tests of TLS: certificates of servers and clients, with keys that are quick to make."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Certificates are valid around the real time, which TLS checks them against.
NOW = datetime.now(UTC)


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        self.certificate = builder.add_extension(x509.BasicConstraints(True, None), critical=True).sign(
            self._key, hashes.SHA256()
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float = 1) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=days))
        )

    def issue(
        self, name: str, *organizations: str, hosts: tuple[str, ...] = (), days: float = 1
    ) -> tuple[bytes, bytes]:
        """Certificate and key: a server's for ``hosts``, a client's without any."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, item) for item in organizations]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(subject, key.public_key(), days).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def write(
        self, folder: Path, stem: str, name: str, *organizations: str, hosts: tuple[str, ...] = (), days: float = 1
    ) -> tuple[Path, Path]:
        """Issue into ``STEM.crt`` and ``STEM.key``."""
        certificate, key = self.issue(name, *organizations, hosts=hosts, days=days)
        files = folder / f"{stem}.crt", folder / f"{stem}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(key)
        return files


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
