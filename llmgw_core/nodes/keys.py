"""Which private keys are offered to a host, and what to tell a person when none of them fits.

Keys are loaded here, off the event loop, so that nothing ever prompts on the terminal: a key that
has a passphrase is used through the agent or not at all, and the error says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from llmgw_core.nodes.agent import Agent, ask_agent
from llmgw_core.nodes.ssh_config import DEFAULT_KEYS, SshTarget

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Offer:
    """The keys for one login, in the order in which they are tried."""

    pairs: list[asyncssh.SSHKeyPair] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    """The same keys in words."""
    passed_over: list[str] = field(default_factory=list)
    """Keys that were named or found and cannot be used, with why."""
    files: list[str] = field(default_factory=list)
    """Paths of the usable ones that lie in files, for another process."""
    agent: Agent | None = None

    def close(self) -> None:
        """Let the agent go; its keys can no longer sign."""
        if self.agent is not None:
            self.agent.close()
            self.agent = None

    @property
    def unsigned(self) -> str:
        """What the agent did not do although a server took the key; empty where there is none."""
        if self.agent is None or not self.agent.unsigned:
            return ""
        refused = self.agent.unsigned
        names = [comment_of(pair) for pair in self.pairs if pair.key_public_data in refused]
        why = next(iter(refused.values()))
        return f"the agent at {self.agent.path} did not sign with its key {_list(names)}: {why}"

    @property
    def words(self) -> str:
        """For an error: what was tried and what was not."""
        tried = f"tried {_list(self.tried)}" if self.tried else "there was no key to try"
        return f"{tried}; not used: {_list(self.passed_over)}" if self.passed_over else tried


def _list(items: Sequence[str], most: int = 6) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def comment_of(key: asyncssh.SSHKeyPair) -> str:
    """What a person calls a key of the agent: its comment, or else its kind."""
    comment = (key.get_comment_bytes() or b"").decode("utf-8", errors="replace")
    return comment or key.get_algorithm()


_Loaded = Sequence[asyncssh.SSHKeyPair] | str
"""The pairs of a file, or why it cannot be used."""


class KeyRing:
    """Keys read from files, each read once as long as the file does not change."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int], _Loaded]] = {}

    async def offer(
        self, target: SshTarget, default_folder: Path, *, only: str | None = None
    ) -> Offer:
        """Keys for a host: the named ones, then the agent's, then the default files.

        ``only`` is a key file that the configuration of llmgw names: then no other key is offered,
        since servers count each one against their limit of attempts.
        """
        offer = Offer()
        named = [only] if only is not None else list(target.identity_files)
        loaded = {name: await self._load(name, target.certificate_files) for name in named}
        public = {name: await asyncio.to_thread(_public_blob, name) for name in named}
        whole = only is not None and not isinstance(loaded[only], str)
        agent_keys = [] if whole else await self._agent_keys(target.agent_path, offer)
        first = [key for key in agent_keys if key.public_data in public.values()]
        self._add_agent(offer, first)
        held = {key.public_data for key in first}
        for name, result in loaded.items():
            if public[name] not in held:
                _add_file(offer, name, result)
        if only is None and not target.identities_only:
            self._add_agent(offer, [key for key in agent_keys if key not in first])
        elif only is not None and public[only] is None and not offer.pairs:
            # the public half is unknown, so which of the agent's keys it is cannot be told
            self._add_agent(offer, agent_keys)
        if not named:
            for name in DEFAULT_KEYS:
                path = default_folder / name
                if path.exists():
                    _add_file(offer, str(path), await self._load(str(path), ()))
        return offer

    async def _load(self, name: str, certificates: Sequence[str]) -> _Loaded:
        try:
            status = await asyncio.to_thread(Path(name).stat)
        except OSError:
            return "there is no such file"
        stamp = (status.st_mtime_ns, status.st_size)
        cached = self._read.get(name)
        if cached is None or cached[0] != stamp or certificates:
            cached = (stamp, await asyncio.to_thread(_load_file, name, certificates))
            self._read[name] = cached
        return cached[1]

    async def _agent_keys(self, path: str | None, offer: Offer) -> list[asyncssh.SSHKeyPair]:
        if path is None:
            return []
        offer.agent, keys, trouble = await ask_agent(path)
        if trouble:
            log.warning("the ssh agent at %s: %s", path, trouble)
            offer.passed_over.append(f"the agent at {path} ({trouble})")
        return keys

    @staticmethod
    def _add_agent(offer: Offer, keys: Sequence[asyncssh.SSHKeyPair]) -> None:
        for key in keys:
            offer.pairs.append(key)
            offer.tried.append(f"the agent's key {comment_of(key)}")


def _add_file(offer: Offer, name: str, loaded: _Loaded) -> None:
    if isinstance(loaded, str):
        offer.passed_over.append(f"{name} ({loaded})")
        return
    offer.pairs += loaded
    offer.tried.append(name)
    offer.files.append(name)


def _load_file(name: str, certificates: Sequence[str]) -> _Loaded:
    try:
        there = [path for path in certificates if Path(path).exists()]
        return asyncssh.load_keypairs([name], certlist=there)
    except asyncssh.KeyEncryptionError:
        return "it has a passphrase: add it to the agent with ssh-add"
    except asyncssh.KeyImportError as error:
        # the library says the same of a passphrase that is missing and of a broken file
        if "passphrase" in str(error).lower():
            return "it has a passphrase: add it to the agent with ssh-add"
        return f"it cannot be read: {error}"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def _public_blob(name: str) -> bytes | None:
    """The public half beside a key file, in the form in which an agent lists it."""
    try:
        return asyncssh.read_public_key(f"{name.removesuffix('.pub')}.pub").public_data
    except (OSError, asyncssh.KeyImportError):
        return None
