"""What faces ask about the keys of the gateway's clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from llmgw_core.api.views import CommandResult
from llmgw_core.config import Config
from llmgw_core.errors import InvalidInput
from llmgw_core.gateway.key_store import KeyStore, Wanted
from llmgw_core.gateway.keys import Key
from llmgw_core.gateway.table import KeyLimits

if TYPE_CHECKING:
    from llmgw_core.controller.core import Controller

Args = dict[str, Any]


class KeyCommands:
    """Carries out the ``keys.`` commands."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def run(self, verb: str, args: Args, actor: str) -> CommandResult:
        """Carry out one; what changed is told, without the secret.

        Raises:
            LlmgwError: of the kind that says why not.
        """
        controller = self._controller
        result = await asyncio.to_thread(
            key_command, controller.parts.state, controller.config, verb, args,
            actor=actor, now=controller.now(),
        )  # fmt: skip
        if verb != "list":
            controller.events.add(f"key.{verb}", f"{actor}: {result.text}", actor=actor)
        return result


def key_command(
    state: Path, config: Config, verb: str, args: Args, *, actor: str, now: float
) -> CommandResult:
    """Carry out a command on the keys of a state directory; the gateway reads them by itself.

    Args:
        state: the state directory.
        config: names the owners and models that there are.
        verb: ``add``, ``list`` or ``revoke``.
        args: as ``api.commands`` says.
        actor: who asks.
        now: Unix seconds.

    Raises:
        LlmgwError: of the kind that says why not.
    """
    store = KeyStore(state)
    match verb:
        case "add":
            key, secret = store.add(_wanted(config, args, now), actor=actor, now=now)
            text = f"made the key {key.name} ({key.hint})"
            return CommandResult(text, {**key_json(key, now), "key": secret})
        case "list":
            keys = [key_json(key, now) for key in store.load().keys]
            return CommandResult(f"{len(keys)} keys", {"keys": keys})
        case _:
            key = store.revoke(str(args.get("name") or ""), actor=actor, now=now)
            return CommandResult(f"revoked the key {key.name} ({key.hint})", key_json(key, now))


def _wanted(config: Config, args: Args, now: float) -> Wanted:
    owner = args.get("owner")
    names = [known.name for known in config.owners]
    if owner is not None and owner not in names:
        shown = ", ".join(names) or "there are none"
        raise InvalidInput(f"there is no owner {owner!r} in the configuration (owners: {shown})")
    try:
        limits = msgspec.convert(args.get("limits") or {}, KeyLimits)
        models = msgspec.convert(args.get("models"), tuple[str, ...] | None)
        lasts = msgspec.convert(args.get("expires_s"), float | int | None)
        named = msgspec.convert(args.get("class"), str | None)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the key cannot be made: {error}") from error
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and value < 1:
            raise InvalidInput(f"{name} is {value}, but must be at least 1; leave it out for none")
    if lasts is not None and lasts <= 0:
        raise InvalidInput("a key must last longer than that; say for how long, like 30d")
    if named is not None and config.rank(named) is None:
        shown = ", ".join(known.name for known in config.classes)
        raise InvalidInput(f"there is no class {named!r} (classes: {shown})")
    return Wanted(
        name=str(args.get("name") or ""),
        owner=owner,
        models=models or None,
        limits=limits,
        model_class=named,
        expires=None if lasts is None else now + lasts,
    )


def key_json(key: Key, now: float) -> Args:
    """A key for scripts and faces, without its digest."""
    return {
        "id": key.id,
        "name": key.name,
        "hint": key.hint,
        "state": key.state(now),
        "owner": key.owner,
        "class": key.model_class,
        "models": None if key.models is None else list(key.models),
        "limits": msgspec.structs.asdict(key.limits),
        "created": key.created,
        "created_by": key.created_by,
        "expires": key.expires,
        "revoked": key.revoked,
        "revoked_by": key.revoked_by,
    }
