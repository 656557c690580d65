"""What faces may ask of single replicas: to be started anew, or to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmgw_core.api.views import CommandResult
from llmgw_core.catalog.model import Mode
from llmgw_core.controller.core import Controller
from llmgw_core.controller.replica import Replica
from llmgw_core.controller.world import Asked, Mark
from llmgw_core.errors import LlmgwError, NotFound


class ReplicaCommands:
    """Both put a mark on a replica's present run, on disk, and leave the rest to the planner: a
    mark reaches a node that is away, and outlives the controller.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def restart(self, args: Mapping[str, Any], actor: str) -> CommandResult:
        """Have a replica, or all of a model's one by one, replaced by fresh ones."""
        replicas = self.restarted(args)
        await self.mark(replicas, Asked.RESTART, actor)
        names = ", ".join(r.id for r in replicas)
        if len(replicas) == 1:
            text = f"{names} is replaced; its successor starts first where there is room"
        else:
            text = f"{names} are replaced one by one, each successor first where there is room"
        return CommandResult(text, _told(replicas))

    async def stop(self, args: Mapping[str, Any], actor: str) -> CommandResult:
        """End a replica; an always-on model gets another in its place."""
        replica = self.replica(args)
        await self.mark([replica], Asked.STOP, actor)
        model = self._controller.keeper.catalog.find(replica.model)
        text = f"{replica.id} stops once its requests are done"
        if model is not None and model.scaling.mode is Mode.ALWAYS:
            text += ", and another takes its place, since the model is always on"
        return CommandResult(text, _told([replica]))

    def restarted(self, args: Mapping[str, Any]) -> list[Replica]:
        """The replicas that a restart means: the one of that name, else all of the model of that
        name or alias, but for those that are on their way in or out just now.

        Raises:
            NotFound: there is neither.
            LlmgwError: it is on its way in or out just now.
        """
        controller = self._controller
        name = str(args.get("replica") or args.get("model") or "")
        model = controller.keeper.catalog.find(name)
        if model is None or (args.get("replica") and controller.roster.get(name) is not None):
            return [self.replica({"replica": name})]
        mine = [r for r in controller.roster if r.model == model.name]
        found = [r for r in mine if controller.executor.can_stop(r.id)]
        if not mine:
            raise NotFound(f"{model.name} has no replica; start one with `llmgw run scale`")
        if not found:
            raise LlmgwError(f"{mine[0].id} is {mine[0].phase} just now; try again in a moment")
        return found

    def replica(self, args: Mapping[str, Any]) -> Replica:
        """The replica of that name.

        Raises:
            NotFound: there is none.
            LlmgwError: it is on its way in or out just now.
        """
        controller, name = self._controller, str(args.get("replica", ""))
        replica = controller.roster.get(name)
        if replica is None:
            known = ", ".join(r.id for r in controller.roster) or "there are none"
            raise NotFound(f"there is no replica {name!r} (replicas: {known})")
        if not controller.executor.can_stop(replica.id):
            raise LlmgwError(f"{replica.id} is {replica.phase} just now; try again in a moment")
        return replica

    async def mark(self, replicas: Sequence[Replica], asked: Asked, actor: str) -> None:
        """Keep what is asked of these replicas, tell it, and have it planned."""
        controller = self._controller
        mark = Mark("", asked, f"{actor} asked for a {asked}", controller.now())
        await controller.marks.add(replicas, mark, controller.roster)
        for replica in replicas:
            controller.events.add(
                f"replica.{asked}", f"{actor} asked {replica.id} to {asked}", actor=actor,
                model=replica.model, node=replica.node, replica=replica.id)  # fmt: skip
        controller.kick()


def _told(replicas: Sequence[Replica]) -> dict[str, Any]:
    return {"replica": replicas[0].id, "replicas": [replica.id for replica in replicas]}
