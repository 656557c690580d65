"""What faces may ask of the mirror."""

from __future__ import annotations

from typing import Any

import msgspec

from llmgw_core.api.views import CommandResult
from llmgw_core.controller.core import Controller
from llmgw_core.controller.mirror_keeper import MirrorKeeper
from llmgw_core.controller.pulls import PullRequest
from llmgw_core.errors import InvalidInput, LlmgwError, Refused
from llmgw_core.mirror.looks import version_view
from llmgw_core.mirror.names import read_mirror, read_pull, shown

Args = dict[str, Any]


class MirrorCommands:
    """Carries out ``mirror.*`` commands."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def run(self, verb: str, args: Args, actor: str) -> CommandResult:
        """One command, by the word after ``mirror.``.

        Raises:
            LlmgwError: of the kind that says why not.
        """
        match verb:
            case "pull":
                return await self._pull(args, actor)
            case "cancel":
                return await self._cancel(args, actor)
            case "rm":
                return await self._remove(args, actor)
            case "verify":
                return await self._verify(args)
            case "clean":
                return await self._clean(args, actor)
            case _:
                raise InvalidInput(f"there is no command mirror.{verb}")

    @property
    def _mirror(self) -> MirrorKeeper:
        mirror = self._controller.mirror
        if not isinstance(mirror, MirrorKeeper):
            raise Refused("this engine has no mirror")
        return mirror

    async def _pull(self, args: Args, actor: str) -> CommandResult:
        source = str(args.get("source") or "")
        read_pull(source)
        request = PullRequest(
            source, str(args.get("model") or ""), str(args.get("version") or ""), actor
        )
        version = await self._mirror.pull(request)
        self._controller.events.add(
            "mirror.pulling", f"{actor} has {version.name} pulled from {shown(source)}",
            actor=actor)  # fmt: skip
        view = version_view(version, pulling=not version.complete)
        return CommandResult(f"{version.name} is being pulled", msgspec.to_builtins(view))

    async def _cancel(self, args: Args, actor: str) -> CommandResult:
        named = read_mirror(_key(args))
        await self._mirror.cancel(named.model, named.version)
        text = f"the pull of {named.key} has ended; what has come is kept"
        self._controller.events.add("mirror.cancelled", f"{actor}: {text}", actor=actor)
        return CommandResult(text)

    async def _remove(self, args: Args, actor: str) -> CommandResult:
        named = read_mirror(_key(args))
        used = self._controller.weights.users(self._controller.keeper.catalog).get(named.key, ())
        freed = await self._mirror.remove(named.model, named.version, used)
        gone, kept = await self._remove_from_nodes(named.key)
        text = f"{named.key} is removed, {freed / 1e9:.1f} GB are free again"
        if gone:
            text += f"; its copies on {', '.join(gone)} are removed too"
        if kept:
            text += "; " + "; ".join(kept)
        self._controller.events.add("mirror.removed", f"{actor}: {text}", actor=actor)
        return CommandResult(
            text, {"model": named.model, "version": named.version, "freed_bytes": freed}
        )

    async def _remove_from_nodes(self, key: str) -> tuple[list[str], list[str]]:
        """Take a version away from the nodes that hold it; where it went, and why it did not."""
        gone, kept = [], []
        for name, node in self._controller.fleet.nodes.items():
            if node.facts is None or key not in (node.facts.weights or ()):
                continue
            try:
                await node.remove_weights(key)
            except LlmgwError as error:
                kept.append(f"its copy on {name} stays: {error}")
            else:
                gone.append(name)
        return gone, kept

    async def _verify(self, args: Args) -> CommandResult:
        wanted = (
            [read_mirror(_key(args))]
            if args.get("model")
            else [
                read_mirror(version.name) for version in self._mirror.versions if version.complete
            ]
        )
        findings = [
            finding
            for named in wanted
            for finding in await self._mirror.verify(named.model, named.version)
        ]
        text = f"{len(wanted)} versions were read: " + (
            "all as they were stored"
            if not findings
            else "; ".join(f"{f.model}/{f.version}/{f.file}: {f.problem}" for f in findings[:5])
        )
        data = {
            "ok": not findings,
            "findings": [
                {"model": f.model, "version": f.version, "file": f.file, "problem": f.problem}
                for f in findings
            ],
        }
        return CommandResult(text, data)

    async def _clean(self, args: Args, actor: str) -> CommandResult:
        dry = bool(args.get("dry_run"))
        gone = await self._mirror.clean(dry_run=dry)
        size = sum(waste.bytes for waste in gone)
        verb = "would go" if dry else "went"
        text = (
            f"{len(gone)} things {verb}, {size / 1e9:.1f} GB"
            if gone
            else "there is nothing to clean"
        )
        if gone and not dry:
            self._controller.events.add("mirror.cleaned", f"{actor}: {text}", actor=actor)
        data = {
            "dry_run": dry,
            "bytes": size,
            "waste": [{"path": w.path, "bytes": w.bytes, "why": w.why} for w in gone],
        }
        return CommandResult(text, data)


def _key(args: Args) -> str:
    return f"{args.get('model') or ''}/{args.get('version') or ''}"
