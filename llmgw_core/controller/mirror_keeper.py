"""Keeps the mirror: its store looked at, its server running, its pulls under way."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from llmgw_core.api.views import MirrorVersionView, MirrorView
from llmgw_core.config import MirrorConfig, NodeConfig
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.pull_book import PullBook
from llmgw_core.controller.pulls import Pull, PullRequest, Pulls
from llmgw_core.errors import LlmgwError, NotFound
from llmgw_core.ledger.events import EventLog
from llmgw_core.mirror.link import Address, MirrorLink
from llmgw_core.mirror.looks import version_view
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.settings import MirrorSettings
from llmgw_core.mirror.store import Finding, Store
from llmgw_core.mirror.tidy import Waste, clean
from llmgw_core.mirror.tokens import ensure_secret, fetch_token
from llmgw_core.mirror.versions import MirrorVersion

log = logging.getLogger(__name__)

ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
LOOK_EVERY_S = 10.0
ENSURE_EVERY_S = 2.0
TOKEN_LASTS_S = 24 * 3600.0
RETRY_FIRST_S = 30.0
RETRY_MOST_S = 1800.0
GIB = 1024**3
SECRET_FILE = "mirror.secret"  # noqa: S105 - a file's name


@dataclass(slots=True)
class _Tried:
    """A source of the catalog that was pulled in vain."""

    times: int
    again_at: float


@dataclass(frozen=True, slots=True)
class _Token:
    """What opens a version, while the secret stays the same."""

    secret: str = field(repr=False)
    until: float
    token: str = field(repr=False)


class MirrorKeeper:
    """Satisfies ``MirrorHandle``; also carries out what people ask of the mirror."""

    def __init__(
        self,
        state: Path,
        keeper: Keeper,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._keeper = keeper
        self._kick: Callable[[], None] = lambda: None
        self._clock = clock
        self._events: EventLog | None = None
        self._link = MirrorLink(state)
        self._address: Address | None = None
        self._pid: int | None = None
        self._reason = ""
        self._secret = ""
        self._stored: tuple[MirrorVersion, ...] = ()
        self._ended: dict[str, MirrorVersion] = {}
        """What pulls left that ended since the store was looked at."""
        self._free: int | None = None
        self._look = asyncio.Event()
        self._tokens: dict[tuple[str, str], _Token] = {}
        self._tried: dict[str, _Tried] = {}
        self._stopping = False
        self._book = PullBook(state / "pulls.json")
        self._noted: tuple[PullRequest, ...] = ()
        self._closing = False
        self.pulls = Pulls(lambda: self.root, self._pull_options, self._heard)

    def attach(self, events: EventLog, kick: Callable[[], None]) -> None:
        """Tell what happens there, and wake the controller by ``kick``."""
        self._events, self._kick = events, kick

    @property
    def root(self) -> Path:
        """The store's folder."""
        said = self._config.path
        return Path(said).expanduser() if said else self._state / "mirror"

    @property
    def store(self) -> Store:
        """The store; its methods block."""
        return Store(self.root)

    @property
    def _config(self) -> MirrorConfig:
        return self._keeper.config.mirror

    @property
    def versions(self) -> tuple[MirrorVersion, ...]:
        """What it holds and pulls, as last looked at; a running pull's own word comes first."""
        live = dict(self._ended)
        live.update((p.version.name, p.version) for p in self.pulls.all if p.running and p.version)
        stored = [live.pop(version.name, version) for version in self._stored]
        return (*stored, *live.values())

    def find(self, source: str) -> MirrorVersion | None:
        """The newest version that was pulled from a source (as it was asked for)."""
        meant = (v.of_source(source, shown(source)) for v in self.versions)
        found = [v for v in meant if v is not None]
        return max(found, key=lambda v: (v.complete, v.created or 0.0), default=None)

    def pulling(self, source: str) -> str:
        """How the pull of a source is, in words; empty where there is none."""
        pull = self.pulls.of_source(source)
        if pull is None:
            return ""
        if pull.error is not None and pull.done:
            return f"that failed and is tried again: {pull.error}"
        if pull.version is None:
            return "it is being looked up"
        total, done = pull.version.bytes_total, pull.version.bytes_done
        return f"{100 * done / total:.0f} % of {total / 1e9:.1f} GB" if total else f"{done} bytes"

    def want(self, source: str) -> None:
        """Begin to pull a source, where it is not pulled; after a failure only once in a while."""
        pull = self.pulls.of_source(source)
        if pull is not None and pull.running:
            return
        tried = self._tried.get(source)
        now = time.monotonic()
        if tried is not None and now < tried.again_at:
            return
        times = tried.times + 1 if tried else 1
        pause = min(RETRY_FIRST_S * 2 ** min(times - 1, 10), RETRY_MOST_S)
        self._tried[source] = _Tried(times, now + pause)
        self._tell("mirror.pulling", f"the mirror pulls {shown(source)}, which a model needs")
        self.pulls.begin(PullRequest(source))

    def address(self) -> str | None:
        """``http://HOST:PORT`` as nodes reach it; None while it does not serve."""
        if self._address is None:
            return None
        return self._config.url.rstrip("/") if self._config.url else self._address.url

    async def address_for(self, node: NodeConfig) -> str | None:
        """The same for one node; None where it cannot reach it."""
        address = self._address
        if address is None or (self._config.url and not node.local):
            return self.address() if address else None
        if is_loopback(address.host):
            return address.url if node.local else None
        if address.host not in ANY_ADDRESS:
            return address.url
        if node.local:
            return Address("127.0.0.1", address.port).url
        own = None if node.jump else await asyncio.to_thread(own_address, node.host or node.name)
        return Address(own, address.port).url if own else None

    def token(self, model: str, version: str) -> str:
        """What opens one version to a node for a day; the same one for half of it."""
        now = self._clock()
        kept = self._tokens.get((model, version))
        if kept is None or kept.secret != self._secret or kept.until < now + TOKEN_LASTS_S / 2:
            until = now + TOKEN_LASTS_S
            token = fetch_token(self._secret, model, version, expires=until)
            kept = self._tokens[model, version] = _Token(self._secret, until, token)
        return kept.token

    async def run(self) -> None:
        """Keep it running until cancelled; the server goes on, pulls end and can be resumed."""
        for request in await asyncio.to_thread(self._book.read):
            self.pulls.begin(request)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve(), name="mirror server")
                group.create_task(self._watch_store(), name="mirror store")
        finally:
            self._closing = True  # what is under way stays noted, for a successor
            await self.pulls.aclose()

    async def stop(self) -> None:
        """End its server and its pulls; what has come is kept."""
        self._stopping = self._closing = True
        await self.pulls.aclose()
        await self._link.stop(drain_s=0.0)
        self._address = None

    async def _serve(self) -> None:
        secret_file = self._state / SECRET_FILE
        while True:
            try:
                self._secret = await asyncio.to_thread(ensure_secret, secret_file)
                if not self._stopping:
                    self._address = await self._link.ensure(self._settings(secret_file))
                    status = await self._link.status()
                    self._pid = status.pid if status else None
                    self._reason = ""
            except (LlmgwError, OSError) as error:
                if str(error) != self._reason:
                    self._tell("mirror.down", f"the mirror does not serve: {error}", "warning")
                self._address, self._reason = None, str(error)
            await asyncio.sleep(ENSURE_EVERY_S)

    def _settings(self, secret_file: Path) -> MirrorSettings:
        config = self._config
        return MirrorSettings(
            root=self.root.absolute(),
            secret_file=secret_file.absolute(),
            host=config.host,
            port=config.port,
            rate_limit=config.rate_limit_mb_s * 1e6 if config.rate_limit_mb_s else None,
        )

    async def _watch_store(self) -> None:
        while True:
            self._look.clear()
            await self._note()
            await self.refresh()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _note(self) -> None:
        """Write down what is under way, under the names that it has got."""
        running = tuple(_named(pull) for pull in self.pulls.all if pull.running)
        if running != self._noted:
            self._noted = running
            await asyncio.to_thread(self._book.write, running)

    async def refresh(self) -> None:
        """Look at the store now."""
        try:
            store, ended = self.store, dict(self._ended)
            self._stored = await asyncio.to_thread(store.versions)
            for name, version in ended.items():
                if self._ended.get(name) is version:
                    del self._ended[name]
            self._free = await asyncio.to_thread(store.free_bytes)
        except (LlmgwError, OSError) as error:
            log.warning("mirror.store_unread error=%s", error)
        self._kick()

    def _heard(self, pull: Pull) -> None:
        if not pull.done:
            if len(self._noted) != sum(p.running for p in self.pulls.all):
                self._look.set()
            self._kick()
            return
        if self._closing:
            return
        if pull.version is not None:
            self._ended[pull.version.name] = pull.version
        name = pull.version.name if pull.version else shown(pull.request.source)
        if pull.error is not None:
            self._tell("mirror.failed", f"the pull of {name} ended: {pull.error}", "warning")
        else:
            tried = self._tried.get(pull.request.source)
            if tried is not None:  # not at once again, should it turn out to be of no use
                tried.times = 0
            self._tell("mirror.pulled", f"{name} is in the mirror")
        self._look.set()
        self._kick()

    def _pull_options(self) -> Mapping[str, object]:
        endpoint = self._config.hub_endpoint or os.environ.get("HF_ENDPOINT")
        return {"endpoint": endpoint}

    def _tell(self, kind: str, text: str, severity: str = "info") -> None:
        if self._events is not None:
            self._events.add(kind, text, severity=severity)

    # What people ask

    async def pull(self, request: PullRequest) -> MirrorVersion:
        """Begin a pull; returns once it is known what is fetched.

        Raises:
            LlmgwError: it cannot be, with why.
        """
        return await self.pulls.known(self.pulls.begin(request))

    async def cancel(self, model: str, version: str) -> None:
        """End the running pull of a version.

        Raises:
            NotFound: there is none.
        """
        pull = self.pulls.of_version(model, version)
        if pull is None:
            raise NotFound(f"nothing pulls {model}/{version} now")
        await self.pulls.cancel(pull)

    async def remove(self, model: str, version: str, used_by: Collection[str]) -> int:
        """Remove a version that no model uses; the bytes that this freed."""
        freed = await asyncio.to_thread(self.store.remove, model, version, sorted(used_by))
        await self.refresh()
        return freed

    async def verify(self, model: str, version: str) -> tuple[Finding, ...]:
        """Read a version whole and compare it with its checksums."""
        found = await asyncio.to_thread(self.store.verify, model, version)
        await self.refresh()
        return found

    async def clean(self, *, dry_run: bool) -> tuple[Waste, ...]:
        """What nobody needs, removed unless ``dry_run``."""
        gone = await asyncio.to_thread(clean, self.store, dry_run=dry_run)
        await self.refresh()
        return gone

    def view(self) -> MirrorView:
        """How it is, for people."""
        state = "serving" if self._address else "down" if self._reason else "starting"
        return MirrorView(
            state=state,
            address=self.address(),
            pid=self._pid if self._address else None,
            root=str(self.root),
            disk_free_gb=self._free / GIB if self._free is not None else None,
            versions=tuple(map(self._version_view, self.versions)),
            reason=self._reason,
        )

    def _version_view(self, version: MirrorVersion) -> MirrorVersionView:
        pull = self.pulls.of_version(version.model, version.version)
        view = version_view(version, pulling=pull is not None)
        if pull is not None or version.complete or view.error:
            return view
        return msgspec.structs.replace(view, error=self.pulls.why_ended(version.name))


def _named(pull: Pull) -> PullRequest:
    """The request with the names that follow from its source, which may be others tomorrow."""
    known = pull.version
    if known is None:
        return pull.request
    return replace(pull.request, model=known.model, version=known.version)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_address(host: str) -> str | None:
    """The address from which this machine would reach a host, by its routes; nothing is sent."""
    try:
        for family, kind, _, _, at in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(at)
                return str(probe.getsockname()[0])
    except OSError:
        return None
    return None
