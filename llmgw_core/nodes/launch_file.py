"""The files of a start: the command as sh text, the record, the supervisor, packed for the link."""

from __future__ import annotations

import re

from llmgw_core.errors import InvalidInput
from llmgw_core.nodes.instance import InstanceSpec
from llmgw_core.nodes.records import spec_line
from llmgw_core.nodes.script import is_name, load, quote

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = frozenset({"LLMGW_INSTANCE", "SPT_NOENV"})
_RESERVED = re.compile(r"(spec\.json|cmd|sup\.sh|pid|exit|lock|log)(\..*)?")
_DIRECTORY = '"$LLMGW_INSTANCE"'
MAX_PAYLOAD = 4 * 1024 * 1024
"""Bytes that one start may carry."""


def command_file(spec: InstanceSpec) -> bytes:
    """The text of ``cmd``: environment, then ``exec`` of the command.

    It is run in the instance's directory, by the process that becomes the engine.

    Raises:
        InvalidInput: no command, a name that no environment can hold, or a NUL character.
    """
    if not spec.argv:
        msg = f"{spec.name} has no command to run"
        raise InvalidInput(msg)
    lines = [f"[ \"$4\" = '{spec.token}' ] || exit 75", load("cmd.sh")]
    try:
        for name, value in spec.env.items():
            if not _ENV_NAME.fullmatch(name):
                msg = f"{name!r} in the environment of {spec.name} is no variable's name"
                raise InvalidInput(msg)
            if name not in _OURS:
                lines.append(f"export {name}={quote(value, directory=_DIRECTORY)}")
        # what marks every process of the instance, also for those that retitle themselves
        lines.append("export LLMGW_INSTANCE SPT_NOENV=1")
        lines.append("exec " + " ".join(quote(a, directory=_DIRECTORY) for a in spec.argv))
    except ValueError as error:
        msg = f"cannot start {spec.name}: {error}"
        raise InvalidInput(msg) from error
    return ("\n".join(lines) + "\n").encode(errors="surrogateescape")


def pack(spec: InstanceSpec) -> tuple[tuple[str, ...], bytes]:
    """All files of a start as ``NAME:SIZE`` words and their joined bytes.

    Raises:
        InvalidInput: a file's name that is not allowed, or more than ``MAX_PAYLOAD`` bytes.
    """
    files = {
        "spec.json": spec_line(spec),
        "cmd": command_file(spec),
        "sup.sh": load("lib.sh", "sup.sh").encode(),
    }
    for name, data in spec.files.items():
        if not is_name(name) or _RESERVED.fullmatch(name):
            msg = f"{name!r} cannot name a file of {spec.name}; take letters, digits, _ and -"
            raise InvalidInput(msg)
        files[name] = data
    payload = b"".join(files.values())
    if len(payload) > MAX_PAYLOAD:
        msg = (
            f"the files of {spec.name} have {len(payload)} bytes; at most {MAX_PAYLOAD} can be sent"
        )
        raise InvalidInput(msg)
    return tuple(f"{name}:{len(data)}" for name, data in files.items()), payload
