"""What faces may ask of a controller, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from llmgw_core.api.commands import NAMES
from llmgw_core.api.views import Command, CommandResult, ModelView, NodeView, ReplicaView
from llmgw_core.catalog.model import Mode, Model
from llmgw_core.controller.core import Controller
from llmgw_core.controller.key_commands import KeyCommands
from llmgw_core.controller.mirror_commands import MirrorCommands
from llmgw_core.controller.previews import Previews
from llmgw_core.controller.replica_commands import ReplicaCommands
from llmgw_core.controller.serving import Serving
from llmgw_core.errors import InvalidInput, NotFound, Refused
from llmgw_core.nodes.api import NodeHandle

Args = dict[str, Any]
Handler = Callable[[Args, str], Awaitable[CommandResult]]


class Commands:
    """Carries out commands, each of which returns once it is accepted."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._mirror = MirrorCommands(controller)
        self._serving = Serving(controller)
        self._keys = KeyCommands(controller)
        self._replicas = ReplicaCommands(controller)
        self._handlers: dict[str, Handler] = {
            "restart": self._replicas.restart,
            "stop": self._replicas.stop,
            "node.trust": self._trust,
            "node.takeover": self._takeover,
            "node.cordon": self._cordon("cordoned"),
            "node.uncordon": self._cordon(None),
            "node.drain": self._cordon("draining"),
            "node.provision": self._provision,
            "node.probe": self._probe,
            "serve.plan": self._serve_plan,
            "reload": self._reload,
            "plan": self._plan,
            "preview": Previews(controller, self._replicas).run,
            "explain": self._explain,
            "shutdown": self._shutdown,
            "handover": self._handover,
        }

    async def run(self, command: Command) -> CommandResult:
        """Carry out one command.

        Raises:
            LlmgwError: of the kind that says why not.
        """
        if command.name not in NAMES:
            raise InvalidInput(f"there is no command {command.name!r}")
        group, _, verb = command.name.partition(".")
        if group == "mirror":
            return await self._mirror.run(verb, command.args, command.actor)
        if group == "keys":
            return await self._keys.run(verb, command.args, command.actor)
        handler = self._handlers.get(command.name)
        if handler is not None:
            return await handler(command.args, command.actor)
        return await self._change(command)

    async def _change(self, command: Command) -> CommandResult:
        keeper = self.controller.keeper
        name = str(command.args.get("name", ""))
        before = keeper.catalog.find(name)
        model = await keeper.change(command.name, dict(command.args), command.actor)
        if before is model and command.name != "remove":
            return CommandResult(f"{model.name} is that already", self._model(model.name))
        text = _told(command.name, before, model)
        self.controller.events.add(
            f"model.{command.name}", f"{command.actor} {text}", actor=command.actor,
            model=model.name)  # fmt: skip
        self.controller.tick()
        return CommandResult(text, self._model(model.name))

    def _model(self, name: str) -> Any:
        found = next((m for m in self.controller.snapshot().models if m.name == name), None)
        return builtin(found)

    # nodes

    def _node(self, args: Args) -> NodeHandle:
        name = str(args.get("name", ""))
        node = self.controller.fleet.nodes.get(name)
        if node is None:
            known = ", ".join(self.controller.fleet.nodes) or "there are none"
            raise NotFound(f"there is no node {name!r} (nodes: {known})")
        return node

    async def _trust(self, args: Args, actor: str) -> CommandResult:
        node = self._node(args)
        wanted = args.get("fingerprint")
        fingerprint = await node.trust(str(wanted) if wanted else None)
        name = node.config.name
        text = f"the host key {fingerprint} of {name} is trusted from now on"
        self.controller.events.add("node.trusted", f"{actor}: {text}", actor=actor, node=name)
        return CommandResult(text, {"name": name, "fingerprint": fingerprint})

    async def _takeover(self, args: Args, actor: str) -> CommandResult:
        node = self._node(args)
        name, before = node.config.name, node.status.holder
        was = await node.takeover()
        if was is None and before is None:
            return CommandResult(f"{name} is led from here already", {"name": name, "from": None})
        text = f"{name} is led from here now, and no longer by {was or before}"
        self.controller.events.add("node.takeover", f"{actor}: {text}", actor=actor,
                                   severity="warning", node=name)  # fmt: skip
        self.controller.kick()
        return CommandResult(text, {"name": name, "from": str(was or before)})

    def _cordon(self, state: str | None) -> Handler:
        async def handler(args: Args, actor: str) -> CommandResult:
            name = self._node(args).config.name
            await self.controller.keeper.set_cordon(name, state)
            text = {
                None: f"{name} takes replicas again",
                "cordoned": f"{name} takes no more replicas; those there stay",
                "draining": f"{name} is drained: its replicas move as others become ready",
            }[state]
            kind = f"node.{state or 'uncordoned'}"
            self.controller.events.add(kind, f"{actor}: {text}", actor=actor, node=name)
            self.controller.kick()
            return CommandResult(text, {"name": name, "cordon": state})

        return handler

    async def _provision(self, args: Args, actor: str) -> CommandResult:
        node, engine = self._node(args), str(args.get("engine") or "llamacpp")
        name, events = node.config.name, self.controller.events
        events.add("node.provisioning", f"{actor}: {engine} is being installed on {name}",
                   actor=actor, node=name)  # fmt: skip
        version = await node.provision(engine, progress=lambda _: None)
        await node.probe()
        self.controller.kick()
        text = f"{engine} {version} is installed on {name}"
        events.add("node.provisioned", text, actor=actor, node=name)
        return CommandResult(text, {"name": name, "engine": engine, "version": version})

    async def _probe(self, args: Args, actor: str) -> CommandResult:
        node = self._node(args)
        await node.probe()
        name = node.config.name
        view = next((n for n in self.controller.snapshot().nodes if n.name == name), None)
        return CommandResult(f"{name} answered the probe", builtin(view))

    async def _serve_plan(self, args: Args, actor: str) -> CommandResult:
        fields = args.get("fields") or {}
        if not isinstance(fields, dict):
            raise InvalidInput("fields must be a table of texts")
        typed = {str(name): str(text) for name, text in fields.items()}
        view = await self._serving.plan(str(args.get("source") or ""), typed)
        return CommandResult(f"how {view.model} would be served", builtin(view))

    # the whole

    async def _reload(self, args: Args, actor: str) -> CommandResult:
        controller = self.controller
        errors = await controller.keeper.reload()
        controller.config_errors = errors
        controller.kick()
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            text = f"the configuration was not reloaded, the old one stays in force: {errors[0]}"
            controller.events.add("config.refused", text + more, actor=actor, severity="error")
            raise InvalidInput(text + more)
        controller.fleet.apply(controller.config.nodes)
        text = "the configuration was reloaded"
        controller.events.add("config.reloaded", f"{actor}: {text}", actor=actor)
        controller.kick()
        return CommandResult(text)

    async def _plan(self, args: Args, actor: str) -> CommandResult:
        return CommandResult("the plan as of now", self._plan_data(None))

    async def _explain(self, args: Args, actor: str) -> CommandResult:
        name = str(args.get("name", ""))
        model = self.controller.keeper.catalog.find(name)
        if model is None:
            raise NotFound(f"there is no model {name!r}")
        return CommandResult(f"why {model.name} is as it is", self._plan_data(model.name))

    def _plan_data(self, only: str | None) -> Args:
        plan, snapshot = self.controller.plan, self.controller.snapshot()
        return {
            "actions": [
                {"kind": str(a.kind), "model": a.model, "profile": a.profile,
                 "nodes": list(a.nodes), "replica": a.replica, "why": a.why}
                for a in plan.actions if only in (None, a.model)
            ],
            "pending": [
                {"model": p.model, "profile": p.profile, "node": p.node, "reason": p.reason}
                for p in plan.pending if only in (None, p.model)
            ],
            "headroom": {
                m.name: builtin(m.headroom) for m in snapshot.models if only in (None, m.name)
            },
            "replicas": [
                {"replica": r.id, "model": r.model, "nodes": list(r.nodes), "state": r.state,
                 "reason": r.reason}
                for r in snapshot.replicas if only in (None, r.model)
            ],
        }  # fmt: skip

    async def _shutdown(self, args: Args, actor: str) -> CommandResult:
        """Stop what was asked to stop, then end the controller."""
        from llmgw_core.controller.shutdown import stop_replicas

        controller = self.controller
        if args.get("stop_replicas"):
            await stop_replicas(controller, f"{actor} stopped serving")
        if args.get("stop_gateway"):
            await controller.gateway.stop(drain_s=controller.config.gateway.drain_timeout_s)
            await controller.mirror.stop()
        controller.events.add("controller.stopping", f"{actor} ended the controller", actor=actor)
        controller.stopping.set()
        return CommandResult("the controller ends")

    async def _handover(self, args: Args, actor: str) -> CommandResult:
        """End the loop and leave everything running, for a daemon to find."""
        if self.controller.halted or self.controller.stopping.is_set():
            raise Refused("the controller ends already, and there is nothing to hand over")
        self.controller.halted = self.controller.handed_over = True
        self.controller.events.add(
            "controller.handover", f"{actor} handed over to a daemon", actor=actor)  # fmt: skip
        self.controller.stopping.set()
        return CommandResult("the controller gives way to a daemon")


def builtin(view: ModelView | NodeView | ReplicaView | msgspec.Struct | None) -> Any:
    """A view as plain JSON values."""
    return msgspec.to_builtins(view)


def _told(command: str, before: Model | None, model: Model) -> str:
    """A change in words: from what to what."""
    match command:
        case "scale":
            was = _run_mode(before) if before else "–"
            return f"scaled {model.name}: {was} → {_run_mode(model)}"
        case "class":
            return f"put {model.name} into class {model.model_class}"
        case "owner":
            return f"gave {model.name} to {model.owner or 'nobody'}"
        case "resources":
            return f"changed what {model.name} reserves"
        case "add":
            return f"added {model.name} ({_run_mode(model)})"
        case "remove":
            return f"removed {model.name}"
        case _:
            return f"changed {model.name}"


def _run_mode(model: Model) -> str:
    match model.scaling.mode:
        case Mode.ALWAYS:
            return f"always {model.scaling.min}"
        case Mode.ON_DEMAND:
            return f"on demand, up to {model.scaling.max}"
        case Mode.STOPPED:
            return "stopped"
