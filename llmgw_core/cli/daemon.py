"""Starting a daemon that takes over from this process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from llmgw_core.api.sync import SyncClient
from llmgw_core.errors import LlmgwError
from llmgw_core.paths import make_private, socket_path

START_MOST_S = 30.0


def spawn_daemon(state: Path, config_file: Path | None) -> int:
    """Start ``llmgw --headless`` in a session of its own and wait until it answers.

    Returns its pid. Its log goes to ``daemon.log`` in the state directory.

    Raises:
        LlmgwError: it ended, or did not answer in time.
    """
    make_private(state)
    log = state / "daemon.log"
    argv = [sys.executable, "-m", "llmgw_core", "--state", str(state), "--headless"]
    if config_file is not None:
        argv[3:3] = ["--config", str(config_file)]
    with log.open("ab") as output:
        log.chmod(0o600)
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
    client = SyncClient(socket_path(state, "control.sock"))
    deadline = time.monotonic() + START_MOST_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LlmgwError(f"the daemon ended with status {process.returncode}; see {log}")
        if client.is_up():
            return process.pid
        time.sleep(0.1)
    raise LlmgwError(f"the daemon (pid {process.pid}) does not answer; see {log}")
