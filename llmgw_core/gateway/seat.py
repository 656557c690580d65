"""Which replica takes a request, and its place in the line until one can."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llmgw_core.gateway.body import Ask
from llmgw_core.gateway.errors import ApiError, line_full, not_ready, waited_too_long
from llmgw_core.gateway.headers import patience_s
from llmgw_core.gateway.policy import candidates, with_room
from llmgw_core.gateway.reply import Reply
from llmgw_core.gateway.request import Request
from llmgw_core.gateway.services import Entry, Services
from llmgw_core.gateway.table import RouteModel, Target

Go = Callable[[Target], None]
Refuse = Callable[[ApiError, bool], None]
"""Told the error, and whether it is for want of a ready replica."""


class Seat:
    """One request's search for a replica.

    Args:
        services: the gateway's parts.
        model: as it was resolved.
        request: what came.
        ask: what it asks for.
        entry: how it was let in.
        go: called with the replica that takes it.
        refuse: called where none does.
    """

    __slots__ = (
        "_ask", "_entry", "_go", "_model", "_patience_s", "_received", "_refuse", "_services",
        "tried", "waits",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        model: RouteModel,
        request: Request,
        ask: Ask,
        entry: Entry,
        *,
        go: Go,
        refuse: Refuse,
    ) -> None:
        self._services = services
        self._model = model
        self._received = request.received
        self._patience_s = patience_s(request.headers)
        self._ask = ask
        self._entry = entry
        self._go = go
        self._refuse = refuse
        self.tried: set[str] = set()
        """Replicas that it was sent to."""
        self.waits = False
        services.metrics.stats(model.name).running += 1

    def route(self) -> RouteModel:
        """The model as the newest table has it: it may have brought others, or taken it away."""
        found = self._services.state.directory.find(self._model.name)
        return found or msgspec.structs.replace(self._model, targets=(), wakes=False)

    def choose(self) -> Target | None:
        """A replica that has room for it now."""
        services = self._services
        loads, lost = services.state.loads, services.state.directory.lost
        free = with_room(self.route().targets, loads)
        free = [target for target in free if target.id not in lost] or free
        left = candidates(free, loads, services.loop.time(), self.tried)
        return services.policy.pick(self._ask, left, loads) if left else None

    def others(self) -> bool:
        """Whether there are replicas that it was not sent to yet."""
        return any(target.id not in self.tried for target in self.route().targets)

    def find(self) -> None:
        """Go to a replica, stand in line for one, or be refused."""
        lines = self._services.state.lines
        target = None if lines.count(self._model.name) else self.choose()
        if target is not None:
            self._take(target)
        else:
            self.wait()
            lines.call(self._model.name)

    def wait(self) -> None:
        """Stand in line, where a place can come."""
        services, model = self._services, self.route()
        lines = services.state.lines
        count, busy = lines.count(model.name), self.others()
        if not busy and not model.wakes:
            self._refuse(not_ready(model), True)
        elif self._patience_s == 0:
            self._refuse(not_ready(model, count), not busy)
        elif count >= services.settings.max_waiting:
            self._refuse(line_full(model.name, count), False)
        else:
            self.waits = True
            services.metrics.stats(model.name).running -= 1
            lines.join(model.name, self, rank=self._rank(model), since=self._received)

    def _rank(self, model: RouteModel) -> int:
        key = self._entry.key
        ranks = self._services.state.directory.table.ranks
        named = key.model_class if key is not None else None
        return model.rank if named is None else ranks.get(named, model.rank)

    def called(self) -> bool:
        """There may be a place now: go on if so. True where this one waits no longer."""
        model, target = self.route(), self.choose()
        if target is None and (self.others() or model.wakes):
            return False
        self.leave()
        if target is not None:
            self._take(target)
        else:
            self._refuse(not_ready(model), True)
        return True

    def leave(self) -> None:
        """Wait no more."""
        if self.waits:
            self.waits = False
            self._services.state.lines.leave(self._model.name, self)
            self._services.metrics.stats(self._model.name).running += 1

    def _take(self, target: Target) -> None:
        self.tried.add(target.id)
        self._go(target)

    def check(self, now: float, reply: Reply) -> None:
        """While it waits: give up in time, and give the client a sign of life."""
        settings, model = self._services.settings, self.route()
        comes = not model.targets and model.state == "starting"
        bound = settings.wake_timeout_s if comes else settings.queue_timeout_s
        if self._patience_s is not None:
            bound = min(bound, self._patience_s)
        waited = now - self._received
        if waited > bound:
            self.leave()
            self._refuse(waited_too_long(model, waited), not model.targets)
            return
        where = f" on {model.node}" if model.node else ""
        far = f" {model.progress:.0%}" if model.progress is not None else ""
        state = "busy" if model.targets else f"{model.state}{where}{far}"
        reply.keep_alive(now, settings.heartbeat_s, f"{model.name} is {state}")
