"""A certificate authority of our own and a certificate for this machine's loopback names, made at start.

By the `cryptography` package if it is installed, else by the `openssl` command: neither is a dependency.
"""

import shutil
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import msgspec

try:
    from halter.proof.wire.x509 import write_certificates
except ImportError:
    write_certificates = None

DAYS = 30
AUTHORITY = "Halter recording provider CA"
ADDRESSES = ("127.0.0.1", "::1")
HOST = "localhost"


class CertificateError(Exception):
    """No certificate could be made."""


class Certificates(msgspec.Struct, frozen=True):
    """Where the files are."""

    ca_file: Path
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_certificates(directory: Path) -> Certificates:
    """Write `ca.pem`, `server.pem` and `server.key`. Raises `CertificateError`."""
    if write_certificates is not None:
        write_certificates(directory, AUTHORITY, HOST, ADDRESSES, timedelta(days=DAYS))
    elif shutil.which("openssl"):
        _by_openssl(directory)
    else:
        raise CertificateError("TLS needs the `cryptography` package or the `openssl` command; neither was found")
    return Certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def _by_openssl(directory: Path) -> None:
    names = ",".join([f"DNS:{HOST}", *(f"IP:{address}" for address in ADDRESSES)])
    (directory / "server.ext").write_text(
        f"subjectAltName={names}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n"
        "keyUsage=critical,digitalSignature\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    (directory / "openssl.cnf").write_text(
        f"[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=ca\n[dn]\nCN={AUTHORITY}\n[ca]\n"
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
    )
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf"
    for command in (
        f"req -x509 {key} -days {DAYS} -keyout ca.key -out ca.pem",
        f"req {key} -subj /CN={HOST} -keyout server.key -out server.csr",
        f"x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {DAYS} -extfile server.ext "
        "-out server.pem",
    ):
        done = subprocess.run(["openssl", *command.split()], cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CertificateError(f"`openssl {command}` failed: {done.stderr.strip()}")
