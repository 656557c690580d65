"""Running scripts on a node: the protocol between what is asked and the link that carries it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What came back, after the ``@@BEGIN`` marker; login noise before it is cut off."""

    stdout: bytes
    stderr: bytes
    exit_status: int


class Exec(Protocol):
    """Runs POSIX sh scripts on one node.

    On the wire it is ``exec /bin/sh -s VERB ARG…`` with the script on stdin, so that any login
    shell will do. Arguments outside ``[A-Za-z0-9_./:@%+=,-]`` are refused with ``ValueError``
    (callers pass base64). Raises ``NodeLost`` where the link is gone or goes away, and
    ``NodeRefused`` with ``RefusedBecause.SHELL`` where no marker comes back. A script that fails
    is not an error here: its exit status is in the result.
    """

    async def script(self, script: str, *args: str, timeout_s: float = 20.0) -> ExecResult:
        """Run to the end. Past the deadline the remote command is ended and NodeLost raised."""
        ...

    def stream(self, script: str, *args: str, answer: bytes | None = None) -> AsyncIterator[bytes]:
        """Lines of stdout (without newline) after the marker, until the script ends or the caller
        stops iterating (then the remote command is ended).

        With ``answer``, each such line is said back on the script's stdin once the caller has
        dealt with it. The script's last line must then end it: what comes after is its input.
        """
        ...

    async def feed(
        self, script: str, *args: str, payload: bytes, timeout_s: float = 60.0
    ) -> ExecResult:
        """Run a script whose main function reads ``payload`` (as base64 lines) through the
        function ``payload`` that this method puts in front of the script: it writes the decoded
        bytes to stdout. Payloads are bounded to 4 MiB."""
        ...
