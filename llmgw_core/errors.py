"""The family of errors that people meet.

    LlmgwError                 exit 1
    ├── InvalidInput           exit 2   a file, option or value that cannot be used
    ├── NotFound               exit 3   no such model, node, replica
    ├── Refused                exit 4   understood, and not allowed as things are
    ├── NoController           exit 5   nobody runs this cluster's controller
    ├── NodeLost               exit 1   the link went away: what was asked may have happened
    ├── NodeRefused            exit 4   the node does not let us in (host key, auth, configuration)
    ├── RemoteFailed           exit 1   a command ran on a node and reported failure
    └── EngineFailed           exit 1   an engine did not start or did not stay

Each message is one sentence: what is wrong, where, and what to do.
"""

from __future__ import annotations

from enum import StrEnum


class LlmgwError(Exception):
    """Base of every error that is shown to a person."""

    exit_code = 1
    code = "failed"
    """A stable word for the socket's JSON and for scripts."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InvalidInput(LlmgwError):
    """A configuration, option or value that cannot be used."""

    exit_code = 2
    code = "invalid"


class NotFound(LlmgwError):
    """The named thing does not exist."""

    exit_code = 3
    code = "not_found"


class Refused(LlmgwError):
    """The request was understood and is not allowed as things are."""

    exit_code = 4
    code = "refused"


class NoController(LlmgwError):
    """No controller runs for this state directory."""

    exit_code = 5
    code = "no_controller"


class NodeLost(LlmgwError):
    """The link to a node went away; nothing is known about what was under way."""

    code = "node_lost"


class RefusedBecause(StrEnum):
    """Why a node does not let us in."""

    HOST_KEY_UNKNOWN = "host key unknown"
    HOST_KEY_CHANGED = "host key changed"
    AUTH = "authentication"
    CONFIG = "configuration"
    SHELL = "shell"
    LEASE = "lease"


class NodeRefused(LlmgwError):
    """A node does not let us in, and only a person can change that."""

    exit_code = 4
    code = "node_refused"

    def __init__(self, because: RefusedBecause, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.because = because


class RemoteFailed(LlmgwError):
    """A command ran on a node and reported failure."""

    code = "remote_failed"

    def __init__(self, message: str, *, exit_status: int, output: str = "") -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.output = output


class EngineFailed(LlmgwError):
    """An engine did not start, or did not stay."""

    code = "engine_failed"


BY_CODE: dict[str, type[LlmgwError]] = {
    kind.code: kind
    for kind in (LlmgwError, InvalidInput, NotFound, Refused, NoController, NodeLost, EngineFailed)
}
"""For the client: the class to raise for a code that came over the socket."""
