"""Configuration, catalog and cordons: read, changed and kept, with the old in force on errors."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from llmgw_core.catalog import changes
from llmgw_core.catalog.model import Catalog, CatalogProblem, Model
from llmgw_core.catalog.overlay import DIRECTORY, Overlay, load_catalog
from llmgw_core.config import Config
from llmgw_core.config_file import ConfigProblems, load_config
from llmgw_core.errors import InvalidInput, LlmgwError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Keeper:
    """What is wanted: one validated configuration, and the catalog over it."""

    def __init__(self, state: Path, config_file: Path | None, clock: Callable[[], float]) -> None:
        self.config_file = config_file
        self.config = Config()
        self.catalog = Catalog()
        self.problems: tuple[CatalogProblem, ...] = ()
        self.cordons: dict[str, str] = {}
        """Node to ``cordoned`` or ``draining``."""
        self._overlay = Overlay(state / DIRECTORY)
        self._cordon_file = state / "cordons.json"
        self._clock = clock
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read everything; raises ``ConfigProblems`` for a configuration that cannot be used."""
        config = await asyncio.to_thread(load_config, self.config_file)
        loaded = await asyncio.to_thread(load_catalog, config, self._overlay)
        self.config, self.catalog = config, loaded.catalog
        self.problems = tuple(loaded.problems)
        self.cordons = await asyncio.to_thread(self._read_cordons)

    async def reload(self) -> tuple[str, ...]:
        """Read again; the sentences of what is wrong, with the old in force, or nothing."""
        async with self._lock:
            try:
                await self.load()
            except ConfigProblems as error:
                return tuple(problem.message for problem in error.problems)
            except LlmgwError as error:
                return (str(error),)
        return ()

    async def change(self, command: str, args: dict[str, object], actor: str) -> Model:
        """Carry out a change to an added model and keep it on disk.

        Returns the model as it is now (as it was, for a removal).
        """
        async with self._lock:
            model = self._changed(command, args, actor)
            if command == "remove":
                await self._write(self._overlay.remove, model.name)
            else:
                await self._write(self._overlay.put, model)
            loaded = await asyncio.to_thread(load_catalog, self.config, self._overlay)
            self.catalog = loaded.catalog
            self.problems = tuple(loaded.problems)
        return model

    def preview(self, command: str, args: dict[str, object], actor: str) -> Model:
        """The model as ``change`` would leave it (as it is, for a removal); nothing is kept."""
        return self._changed(command, args, actor)

    def _changed(self, command: str, args: dict[str, object], actor: str) -> Model:
        now, file = self._clock(), str(self.config_file) if self.config_file else None
        catalog, config = self.catalog, self.config
        name = _text(args, "name") if command != "add" else ""
        toml = _text(args, "toml") if command in ("add", "edit") else ""
        match command:
            case "scale":
                return changes.scale(
                    catalog,
                    name,
                    mode=_word(args, "mode"),
                    replicas=_whole(args, "replicas"),
                    delta=_whole(args, "delta"),
                    idle_s=_number(args, "idle_s"),
                    actor=actor,
                    now=now,
                    file=file,
                )
            case "class":
                word = _text(args, "class")
                return changes.set_class(catalog, name, word, config, actor=actor, now=now)
            case "owner":
                owner = _word(args, "owner")
                return changes.set_owner(catalog, name, owner, config, actor=actor, now=now)
            case "resources":
                return changes.set_resources(
                    catalog,
                    name,
                    _word(args, "profile"),
                    min_memory_gb=_amount(args, "min_memory_gb"),
                    cpu_cores=_amount(args, "cpu_cores"),
                    actor=actor,
                    now=now,
                    file=file,
                )
            case "add":
                return changes.add(catalog, toml, config, actor=actor, now=now)
            case "edit":
                return changes.edit(catalog, name, toml, config, actor=actor, now=now)
            case "remove":
                return changes.remove(catalog, name, file)
            case _:
                raise InvalidInput(f"there is no change named {command!r}")

    async def set_cordon(self, node: str, state: str | None) -> None:
        """Cordon or drain a node, or lift it with None; outlives the controller."""
        async with self._lock:
            if state is None:
                self.cordons.pop(node, None)
            else:
                self.cordons[node] = state
            await self._write(self._write_cordons, dict(self.cordons))

    async def _write(self, write: Callable[[T], None], value: T) -> None:
        try:
            await asyncio.to_thread(write, value)
        except OSError as error:
            raise LlmgwError(
                f"the change was not kept: {error.strerror} ({error.filename}); free some space "
                "and try again"
            ) from error

    def _write_cordons(self, cordons: dict[str, str]) -> None:
        new = self._cordon_file.with_suffix(".new")
        new.write_text(json.dumps(cordons), encoding="utf-8")
        os.replace(new, self._cordon_file)

    def _read_cordons(self) -> dict[str, str]:
        try:
            data = json.loads(self._cordon_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            log.warning("cordons.unreadable file=%s error=%s", self._cordon_file, error)
            return {}
        return {str(node): str(state) for node, state in data.items()}


def _text(args: dict[str, object], key: str) -> str:
    value = args.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{key} is missing")
    return value


def _word(args: dict[str, object], key: str) -> str | None:
    value = args.get(key)
    return str(value) if value else None


def _amount(args: dict[str, object], key: str) -> float | changes.Unset | None:
    return _number(args, key) if key in args else changes.UNSET


def _whole(args: dict[str, object], key: str) -> int | None:
    value = args.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{key} must be a whole number, not {value!r}")
    return value


def _number(args: dict[str, object], key: str) -> float | None:
    value = args.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{key} must be a number, not {value!r}")
    return float(value)
