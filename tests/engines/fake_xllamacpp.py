"""Stands for the xllamacpp package: written to a folder as ``xllamacpp.py`` and put on PYTHONPATH.

Its server writes its parameters to $FAKE_OUT, then does what $FAKE_DOES says. Like the real one it
keeps Python's lock while it loads.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import time

__version__ = "1.2.3"


class llama_load_mode(enum.IntEnum):
    LLAMA_LOAD_MODE_AUTO = -1
    LLAMA_LOAD_MODE_NONE = 0


class _Part:
    def __init__(self) -> None:
        self.path = ""
        self.n_threads = -1


class CommonParams:
    def __init__(self) -> None:
        self.model, self.mmproj = _Part(), _Part()
        self.cpuparams, self.cpuparams_batch = _Part(), _Part()
        self.model_alias: set[str] = set()
        self.hostnames = ["127.0.0.1"]
        self.api_keys: list[str] = []
        self.port = self.n_ctx = self.n_threads_http = 0
        self.n_batch, self.n_ubatch = 2048, 512
        self.n_parallel = 1
        self.kv_unified = self.endpoint_metrics = self.embedding = False
        self.chat_template = ""
        self.load_mode = llama_load_mode.LLAMA_LOAD_MODE_AUTO


def _plain(value: object) -> object:
    if isinstance(value, _Part):
        return vars(value)
    return sorted(value) if isinstance(value, set) else value


class Server:
    listening_address = "http://127.0.0.1:1"

    def __init__(self, params: CommonParams) -> None:
        does = os.environ.get("FAKE_DOES", "serve")
        with open(os.environ["FAKE_OUT"], "w", encoding="utf-8") as file:
            json.dump({name: _plain(value) for name, value in vars(params).items()}, file)
        if does == "read":
            with open(params.model.path, "rb") as file:
                file.read(len(file.read()) // 2)
            time.sleep(3)
        if does in ("load", "read"):
            ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the lock
        if does == "fail":
            raise RuntimeError("Failed to init server")
        if does.startswith("signal "):
            os.kill(os.getpid(), int(does.split()[1]))
