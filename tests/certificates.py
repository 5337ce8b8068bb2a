"""Creates certificates for the servers of tests."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(
    directory: Path, *, alternative_names: bool = True, names: Sequence[str] = ("receiver.test",)
) -> Path:
    """Create a file with a private key and a self-signed certificate for 127.0.0.1 and `names`.

    Without `alternative_names`, the certificate names receiver.test, and names it only in the subject.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver.test")])
    now = datetime.datetime.now(datetime.UTC)
    covered = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *map(x509.DNSName, names)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if alternative_names:
        builder = builder.add_extension(x509.SubjectAlternativeName(covered), critical=False)
    signed = builder.sign(key, hashes.SHA256())
    path = directory / "receiver.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path
