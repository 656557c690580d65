"""What is known of each model of the catalog before it runs: its architecture, what it will need,
and on which nodes the engine cannot load it. Found out in the background, once for each source.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llmgw_core.catalog.model import Model
from llmgw_core.catalog.sources import HubSource, UrlSource, read_source
from llmgw_core.controller.render import NodeSeen
from llmgw_core.controller.verdicts import ask_engines
from llmgw_core.engines.llamacpp import settings_key
from llmgw_core.errors import LlmgwError, NotFound
from llmgw_core.gguf.hyper import SHOWN_MOST, HeaderUnusable, hyper
from llmgw_core.gguf.memory import Settings, estimate
from llmgw_core.mirror.inspect import Places, look
from llmgw_core.mirror.looked import Looked
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.plain_text import sanitise
from llmgw_core.serve.plan import weights_bytes

log = logging.getLogger(__name__)

EVERY_S = 2.0
AT_ONCE = 4
"""Models looked at together: one behind a slow hub does not hold up the others."""
AGAIN_S = 60.0
"""After a look that failed, or engines that did not answer."""
LOOK_MOST_S = 60.0
GIB = 1024**3
ENGINE = "llamacpp"


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What was found out about one model."""

    architecture: str = ""
    estimate_gb: float | None = None
    """What a replica will use by the formula; None where it does not apply."""
    basis: str = ""
    refusal: str = ""
    """Why nobody can load it."""
    unable: Mapping[str, str] = field(default_factory=dict)
    """Nodes whose engine cannot load it, and why."""
    looked: Looked | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Kept:
    engines: tuple[tuple[str, str], ...]
    appraisal: Appraisal
    again_at: float


class Appraiser:
    """Appraises the catalog's models one after the other."""

    def __init__(
        self,
        *,
        models: Callable[[], Iterable[Model]],
        nodes: Callable[[], list[NodeSeen]],
        handles: Callable[[], Mapping[str, NodeHandle]],
        places: Callable[[], Places],
        kick: Callable[[], None],
        look_at: Callable[[Model], str] = lambda model: model.source,
    ) -> None:
        self._models = models
        self._nodes = nodes
        self._handles = handles
        self._places = places
        self._kick = kick
        self._look_at = look_at
        self._kept: dict[tuple[str, tuple[str, ...]], _Kept] = {}
        self._new = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def of(self, model: Model) -> Appraisal | None:
        """What is known of a model; None while nobody has looked."""
        kept = self._kept.get(_key(model))
        if kept is None and _applies(model):
            self._new.set()
        return kept.appraisal if kept else None

    def unseen(self, models: Iterable[Model]) -> dict[str, str]:
        """By model: that its weights are still looked at, for those that engines can be asked of.

        Ends by itself: what cannot be looked at counts as seen.
        """
        return {
            model.name: "its weights are looked at"
            for model in models
            if _applies(model) and self.of(model) is None
        }

    def may_pull(self, model: Model) -> bool:
        """Whether it was looked at, and nothing speaks against fetching it."""
        found = self.of(model)
        return found is not None and not found.refusal

    def barred(self, models: Iterable[Model]) -> dict[str, Mapping[str, str]]:
        """By model: nodes that cannot run it, with the reason."""
        found = {model.name: self.of(model) for model in models}
        return {name: a.unable for name, a in found.items() if a is not None and a.unable}

    def barred_for(self, model: Model) -> Mapping[str, str]:
        """Nodes that cannot run this model, with the reason."""
        found = self.of(model)
        return found.unable if found else {}

    def refusals(self, models: Iterable[Model]) -> dict[str, str]:
        """By model: why nobody can load it."""
        found = {model.name: self.of(model) for model in models}
        return {name: a.refusal for name, a in found.items() if a is not None and a.refusal}

    async def run(self) -> None:
        """Look at what is new until cancelled."""
        while True:
            self._new.clear()
            models = {_key(model): model for model in self._models() if _applies(model)}
            async with asyncio.TaskGroup() as group:
                for model in models.values():
                    group.create_task(self._in_turn(model))
            self._kept = {key: kept for key, kept in self._kept.items() if key in models}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._new.wait()

    async def _in_turn(self, model: Model) -> None:
        async with self._slots:
            await self._appraise(model)

    async def _appraise(self, model: Model) -> None:
        engines, key = self._engines(), _key(model)
        kept = self._kept.get(key)
        now = time.monotonic()
        if kept is not None and kept.engines == engines and now < kept.again_at:
            return
        try:
            async with asyncio.timeout(LOOK_MOST_S):
                appraisal, sure = await self._look(model, kept.appraisal if kept else None)
        except (LlmgwError, TimeoutError, OSError) as error:
            log.info("model.unseen model=%s error=%s", model.name, sanitise(str(error), most=300))
            appraisal, sure = (kept.appraisal if kept else Appraisal()), False
        except Exception:
            # the boundary of this task: an odd file must not keep the others from being seen
            log.exception("model.look_broke model=%s", model.name)
            appraisal, sure = Appraisal(), False
        again = float("inf") if sure else now + AGAIN_S
        self._kept[key] = _Kept(engines, appraisal, again)
        if kept is None or kept.appraisal != appraisal:
            self._kick()

    def _engines(self) -> tuple[tuple[str, str], ...]:
        """Which engine each ready node has: another one may know another architecture."""
        found = []
        for seen in self._nodes():
            engine = seen.facts.engine(ENGINE) if seen.facts else None
            if engine is not None and seen.state is NodeState.READY:
                found.append((seen.config.name, f"{engine.path} {engine.version}"))
        return tuple(found)

    async def _look(self, model: Model, before: Appraisal | None) -> tuple[Appraisal, bool]:
        """The appraisal, and whether it is final for these engines."""
        looked = before.looked if before else None
        if looked is None:
            try:
                looked = await look(self._look_at(model), self._places(), whole=False)
            except NotFound:
                away = isinstance(read_source(model.source), HubSource | UrlSource)
                return Appraisal(refusal="" if not away else "it is not there"), False
        header = looked.header
        if header is None:
            return Appraisal(refusal=looked.header_error, looked=None), not looked.unread
        gb, basis = needed(model, looked)
        opinion, verdicts = await ask_engines(header.architecture, self._nodes(), self._handles())
        unable = {
            name: f"{verdicts[name].engine} cannot load it: {verdicts[name].sentence}"
            for name in opinion.unable
        }
        sure = all(verdict.known is not None for verdict in verdicts.values())
        name = sanitise(header.architecture, most=SHOWN_MOST)
        appraisal = Appraisal(name, gb, basis, opinion.refusal, unable, looked)
        return appraisal, sure


def needed(model: Model, looked: Looked) -> tuple[float | None, str]:
    """GiB that a replica of the first llama.cpp profile will use, and that in words."""
    profile = next((p for p in model.profiles if p.engine == ENGINE), None)
    settings = settings_key(ENGINE, profile.args) if profile else None
    weights = weights_bytes(looked.version)
    if profile is None or settings is None or looked.header is None or not weights:
        return None, ""
    keys, _, values = settings.kv_type.partition("/")
    try:
        memory = estimate(
            hyper(looked.header),
            weights - (looked.mmproj_bytes or 0),
            Settings(
                ctx=settings.context,
                parallel=settings.parallel,
                unified=True,
                kv_type_k=keys,
                kv_type_v=values or keys,
            ),
            mmproj_bytes=looked.mmproj_bytes,
        )
    except (HeaderUnusable, LlmgwError) as error:
        return None, str(error)
    return memory.memory_bytes / GIB, memory.basis


def _applies(model: Model) -> bool:
    return any(profile.engine == ENGINE for profile in model.profiles)


def _key(model: Model) -> tuple[str, tuple[str, ...]]:
    args = next((p.args for p in model.profiles if p.engine == ENGINE), ())
    return model.source, args
