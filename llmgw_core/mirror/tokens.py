"""What opens the mirror: the cluster's secret, and tokens for one version and a limited time.

A token is ``v1.EXPIRY.MAC``: the Unix time at which it ends, and HMAC-SHA256 (RFC 2104) over the
version's name and that time under the cluster's secret, in URL-safe base64. The server needs no
list of tokens to check one, and what a node holds opens one version, until then.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from enum import StrEnum
from pathlib import Path

from llmgw_core.errors import InvalidInput

SECRET_LEAST = 32
"""Characters of the cluster's secret, at least."""
SECRET_MOST = 1024
_SCHEME = "v1"
_EXPIRY_DIGITS = 15


class Verdict(StrEnum):
    """What a token opens."""

    ALL = "all"
    """It is the cluster's secret."""
    VERSION = "version"
    """It is a token for the version that was asked for."""
    EXPIRED = "expired"
    """It was one."""
    WRONG = "wrong"


def fetch_token(secret: str, model: str, version: str, *, expires: float) -> str:
    """A token that opens one version until a Unix time.

    Only the beginning of a download is checked: one that runs then goes on.
    """
    until = str(int(expires))
    return f"{_SCHEME}.{until}.{_mac(secret, model, version, until)}"


def judge(secret: str, token: str, *, version: tuple[str, str] | None, now: float) -> Verdict:
    """What a token opens, of this version ``(MODEL, VERSION)``; None asks for the secret alone.

    Takes as long for any token of a form, so that nothing can be learnt by guessing.
    """
    given = token.encode("utf-8", "surrogateescape")
    if hmac.compare_digest(given, secret.encode()):
        return Verdict.ALL
    scheme, _, rest = token.partition(".")
    until, _, _ = rest.partition(".")
    plain = until.isascii() and until.isdigit() and len(until) <= _EXPIRY_DIGITS
    if version is None or scheme != _SCHEME or not plain:
        return Verdict.WRONG
    wanted = f"{_SCHEME}.{until}.{_mac(secret, *version, until)}"
    if not hmac.compare_digest(given, wanted.encode()):
        return Verdict.WRONG
    return Verdict.VERSION if now < int(until) else Verdict.EXPIRED


def secret_id(secret: str) -> str:
    """A short name of a secret, by which two can be compared without being shown."""
    return hmac.new(secret.encode(), b"llmgw mirror secret", hashlib.sha256).hexdigest()[:16]


def _mac(secret: str, model: str, version: str, until: str) -> str:
    # names hold no line breaks, so that no two inputs look alike
    message = f"llmgw mirror fetch\n{model}\n{version}\n{until}".encode()
    mac = hmac.new(secret.encode(), message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def ensure_secret(path: Path) -> str:
    """The secret in a file; one is made where there is none. Safe with two who do so at once.

    Raises:
        InvalidInput: the file cannot be made or used.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(made, secrets.token_urlsafe(32).encode() + b"\n")
            finally:
                os.close(made)
            try:
                os.link(part, path)  # unlike a rename it never replaces another's
            except FileExistsError:
                pass
            finally:
                part.unlink()
    except OSError as error:
        raise InvalidInput(
            f"The mirror's secret cannot be written to {path}: {error.strerror}",
            hint="free some space, or name another state directory",
        ) from error
    return read_secret(path)


def read_secret(path: Path) -> str:
    """The secret in a file.

    Raises:
        InvalidInput: it cannot be read, others can read it, or it is too short or odd.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            raw = file.read(SECRET_MOST + 1)
    except OSError as error:
        raise InvalidInput(
            f"The mirror's secret {path} cannot be read: {error.strerror}",
            hint="remove the file, and a new one is made",
        ) from error
    if mode & 0o077:
        raise InvalidInput(
            f"The mirror's secret {path} can be read by others (mode {mode:04o})",
            hint="remove the file, and a new one is made",
        )
    secret = raw.strip().decode("ascii", "replace")
    printable = secret.isascii() and secret.isprintable() and " " not in secret
    if not printable or not SECRET_LEAST <= len(secret) <= SECRET_MOST:
        raise InvalidInput(
            f"The mirror's secret {path} does not have {SECRET_LEAST} to {SECRET_MOST} "
            "printable characters",
            hint="remove the file, and a new one is made",
        )
    return secret
