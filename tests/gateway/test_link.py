from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from llmgw_core.gateway import link as link_module
from llmgw_core.gateway.link import LOG_NAME, GatewayLink, last_log_line, spawn
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.wire import SOCKET_NAME


async def test_without_a_gateway_connecting_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await GatewayLink.connect(tmp_path)


async def test_a_gateway_killed_in_the_middle_of_a_line_ends_the_messages(tmp_path: Path) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"error":"one"}\n{"rep')
        writer.close()

    server = await asyncio.start_unix_server(half, str(tmp_path / SOCKET_NAME))
    link = await GatewayLink.connect(tmp_path)
    assert [message.error async for message in link.messages()] == ["one"]
    await link.close()
    server.close()


async def test_a_line_without_end_is_an_error_of_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MAX_LINE", 1000)
    ended = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 5000)
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_unix_server(endless, str(tmp_path / SOCKET_NAME))
    link = await GatewayLink.connect(tmp_path)
    with pytest.raises(ConnectionError):
        await anext(link.messages())
    await link.close()
    await asyncio.wait_for(ended.wait(), 20)
    server.close()


def test_a_start_that_fails_leaves_its_reason_as_the_logs_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert last_log_line(tmp_path) == ""
    # a relative directory means the caller's, not the gateway's
    process = spawn(Path(), GatewaySettings(host="192.0.2.1", port=0, insecure_no_keys=True))
    assert process.wait(20) == 3
    assert "cannot listen on 192.0.2.1:0" in last_log_line(tmp_path)


def test_a_log_that_has_grown_large_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LOG_MOST", 100)
    (tmp_path / LOG_NAME).write_text("old\n" * 100)
    process = spawn(tmp_path, GatewaySettings(host="192.0.2.1", port=0))
    process.wait(20)
    assert (tmp_path / f"{LOG_NAME}.1").read_text().startswith("old")
    assert "old" not in (tmp_path / LOG_NAME).read_text()
