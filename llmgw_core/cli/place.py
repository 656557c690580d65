"""Where a command looks: configuration, state directory, and the controller's socket."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw_core.api.sync import SyncClient


@dataclass(frozen=True, slots=True)
class Place:
    """The options that every command shares, resolved when they are needed."""

    config_option: Path | None = None
    state_option: Path | None = None

    @property
    def state(self) -> Path:
        """The state directory."""
        from llmgw_core.paths import state_dir

        return state_dir(self.state_option)

    @property
    def config_file(self) -> Path | None:
        """The configuration file, or None where there is none."""
        from llmgw_core.config_file import find_config

        found = find_config(self.config_option)
        return found.absolute() if found is not None else None

    @property
    def socket(self) -> Path:
        """The controller's socket, whether or not it exists."""
        from llmgw_core.paths import socket_path

        return socket_path(self.state, "control.sock")

    def client(self) -> SyncClient:
        """A client of the controller's socket; nothing is asked yet."""
        from llmgw_core.api.sync import SyncClient

        return SyncClient(self.socket)


def actor() -> str:
    """Who asks: the user's name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
