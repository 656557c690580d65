"""Reading ~/.ssh/config, and what asyncssh and OpenSSH disagree about."""

from __future__ import annotations

import getpass
import shutil
import socket
from pathlib import Path

import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.errors import NodeRefused, RefusedBecause
from llmgw_core.nodes.route import route_to
from llmgw_core.nodes.ssh_config import Home, HopName, SshTarget, parse_hops, resolve, shell_words

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / ".ssh").mkdir()
    return Home(tmp_path, tmp_path / ".ssh" / "config", "/run/agent")


async def read(home: Home, text: str, host: str = "box", **more: object) -> SshTarget:
    assert home.config is not None
    home.config.write_text(text)
    return await resolve(host, home=home, **more)  # type: ignore[arg-type]


async def test_without_a_file(home: Home) -> None:
    target = await resolve("box", home=home)
    assert (target.host, target.port, target.user) == ("box", 22, getpass.getuser())
    assert target.identity_files == ()
    assert target.agent_path == "/run/agent"
    assert target.known_hosts_files == (str(home.folder / ".ssh" / "known_hosts"),)
    assert (await resolve("box", home=Home(home.folder, None))).agent_path is None


EVERYTHING = """
Host box
  HostName 10.0.0.%h
  Port 2222
  User them
  IdentityFile ~/.ssh/one
  IdentityFile %d/two
  IdentitiesOnly yes
  IdentityAgent ~/agent
  CertificateFile ~/.ssh/one-cert.pub
  ProxyJump me@gate:2200,inner
  HostKeyAlias the-box
  UserKnownHostsFile ~/.ssh/known_%k /etc/known
  AddressFamily inet6
Host *
  User nobody
"""


@needs_ssh
@pytest.mark.parametrize("spoiler", ["", "Host never\n Port 1 # a comment\n"])
async def test_both_parsers_read_the_same(
    home: Home, spoiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home.folder))
    text = EVERYTHING + ("\nMatch final\n  User late\n" if spoiler else "")
    target = await read(home, text.replace("10.0.0.%h", "10.0.0.1"))
    ssh = home.folder / ".ssh"
    assert (target.host, target.port, target.user) == ("10.0.0.1", 2222, "them")
    assert target.identity_files[0] == str(ssh / "one")
    assert Path(target.identity_files[1]).name == "two"
    assert target.identities_only
    assert Path(target.agent_path or "").name == "agent"
    assert [Path(p).name for p in target.certificate_files] == ["one-cert.pub"]
    assert target.proxy_jump == "me@gate:2200,inner"
    assert target.host_key_alias == "the-box"
    assert [Path(p).name for p in target.known_hosts_files][:2] == ["known_the-box", "known"]
    assert target.family == socket.AF_INET6


async def test_the_configuration_of_llmgw_outranks_the_file(home: Home) -> None:
    target = await read(home, "Host box\n Port 1\n User them\n", user="us", port=2)
    assert (target.user, target.port) == ("us", 2)


async def test_tokens_of_host_names(home: Home) -> None:
    assert (await read(home, "Host box\n HostName %h.example\n")).host == "box.example"


@needs_ssh
@pytest.mark.parametrize(
    "line",
    [
        "Port 2222 # why",
        "ConnectTimeout none\n Port 2222",
        "Port 2222\nMatch final\n Compression yes",
    ],
)
async def test_what_only_openssh_reads_falls_back_to_it(home: Home, line: str) -> None:
    target = await read(home, f"Host box\n HostName 10.0.0.1\n {line}\n")
    assert (target.host, target.port) == ("10.0.0.1", 2222)
    assert target.identity_files == ()  # the defaults that it prints are no named keys


@needs_ssh
async def test_what_nobody_reads_is_an_error_with_file_and_line(home: Home) -> None:
    with pytest.raises(NodeRefused, match="line 2") as caught:
        await read(home, "Host box\n Port many\n")
    assert caught.value.because is RefusedBecause.CONFIG
    assert str(home.config) in str(caught.value)


async def test_no_ssh_to_fall_back_to(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NodeRefused, match="Extra data"):
        await read(home, "Host box\n Port 2222 # why\n")


async def test_agents(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_AGENT", "/run/mine")
    assert (await read(home, "IdentityAgent SSH_AUTH_SOCK\n")).agent_path == "/run/agent"
    assert (await read(home, "IdentityAgent $MY_AGENT\n")).agent_path == "/run/mine"
    assert (await read(home, "IdentityAgent none\n")).agent_path is None
    assert (await read(home, "UserKnownHostsFile none\n")).known_hosts_files == ()


async def test_proxy_commands_run_in_a_shell(home: Home) -> None:
    target = await read(home, "Host box\n Port 7\n ProxyCommand nc -x proxy %h %p\n")
    assert target.proxy_command == "nc -x proxy box 7"
    assert shell_words(target.proxy_command) == ["/bin/sh", "-c", "exec nc -x proxy box 7"]
    assert (await read(home, "ProxyCommand none\n")).proxy_command is None


@pytest.mark.parametrize(
    ("text", "hops"),
    [
        ("gate", (HopName("gate"),)),
        ("me@gate:2200", (HopName("gate", "me", 2200),)),
        ("a,b@c", (HopName("a"), HopName("c", "b"))),
        ("ssh://me@gate:22/", (HopName("gate", "me", 22),)),
        ("[fd00::1]:2200", (HopName("fd00::1", None, 2200),)),
        ("me@fd00::1", (HopName("fd00::1", "me"),)),
        ("me@[fd00::1]", (HopName("fd00::1", "me"),)),
    ],
)
def test_jump_lists(text: str, hops: tuple[HopName, ...]) -> None:
    assert parse_hops(text) == hops


@pytest.mark.parametrize("text", ["", "a,,b", "me@", "gate:", "gate:0", "gate:70000"])
def test_jump_lists_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|has a port"):
        parse_hops(text)


async def test_routes(home: Home) -> None:
    assert home.config is not None
    home.config.write_text(
        "Host far\n ProxyJump a,b\nHost a\n ProxyJump first\nHost b\n ProxyJump ignored\n"
    )
    hop = await route_to(NodeConfig("n", host="far"), {}, home)
    names = []
    step = hop
    while step is not None:
        names.append(step.target.host)
        step = step.via  # type: ignore[assignment]
    # as OpenSSH goes: the first of a list by its own jump, the others one through the other
    assert names == ["far", "b", "a", "first"]
    gate = NodeConfig("gate", host="10.0.0.9", identity_file="~/key")
    hop = await route_to(NodeConfig("n", host="far", jump="gate"), {"gate": gate}, home)
    assert hop.via is not None
    assert (hop.via.target.host, hop.via.only_key) == ("10.0.0.9", str(home.folder / "key"))
    assert hop.via.via is None


async def test_a_configuration_that_jumps_in_a_circle(home: Home) -> None:
    assert home.config is not None
    home.config.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(NodeRefused, match="circle"):
        await route_to(NodeConfig("a"), {}, home)
