"""The way to a node, and what may be wrong with it: each has a sentence and a remedy of its own."""

from __future__ import annotations

import shutil
import socket
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.errors import RefusedBecause, RemoteFailed
from llmgw_core.nodes import clock, session
from llmgw_core.nodes.cautions import cautions
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fetching import ensure_weights
from llmgw_core.nodes.instance import InstanceState
from llmgw_core.nodes.node import Node
from tests.lab import faults, logins
from tests.lab.fleets import fleet_over, in_state, instance, node_config, until
from tests.lab.hosts import USER, Host
from tests.nodes.shelf import Shelf, serving

pytestmark = pytest.mark.lab


def place_of(host: Host) -> str:
    return f"{host.name} ({host.address} port 22)"


def keyless(host: Host) -> NodeConfig:
    """An entry that names no key file."""
    return replace(node_config(host), identity_file=None)


def key_at(path: Path, *, passphrase: str | None = None) -> Path:
    """A new key in a file."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key(passphrase=passphrase))
    return path


async def refused(node: Node, *, because: RefusedBecause = RefusedBecause.AUTH) -> str:
    """Wait until a person is asked for; returns the sentence. It is not tried again soon."""
    await in_state(node, NodeState.REFUSED)
    assert node.status.because is because
    await until(lambda: node.status.retry_at is not None, "the next try is set")
    assert (node.status.retry_at or 0) - node.status.since >= clock.REFUSED_FIRST_S - 1
    return node.status.reason


async def lost(node: Node, words: str) -> str:
    """Wait until it is away for such a reason; returns the sentence."""
    try:
        await until(lambda: words in node.status.reason, f"it is said: {words}")
    except pytest.fail.Exception:
        pytest.fail(f"{node.status} never said {words}")
    assert node.status.state is NodeState.UNREACHABLE
    return node.status.reason


async def well(node: Node) -> None:
    """It can be worked with from one end to the other."""
    assert node.facts is not None
    assert node.facts.home == f"/home/{USER}"
    assert (await node.start_instance(instance())).state is InstanceState.RUNNING
    assert (await node.read_log("i")).data == b"hello\n"
    assert (await node.stop_instance("i", grace_s=5)).left == ()


async def mended(node: Node) -> None:
    """A person who has seen to it need not wait."""
    await node.probe()
    assert node.status.state is NodeState.READY


# --- host keys


async def test_a_key_that_nobody_has_accepted(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path, trusted=False) as nodes:
        node = nodes[host.name]
        said = await refused(node, because=RefusedBecause.HOST_KEY_UNKNOWN)
        assert said == (
            f"{place_of(host)} shows the host key {host.fingerprint}, which nobody has accepted "
            "yet; compare it with the host's own, then "
            f"`llmgw run node trust {host.name} --fingerprint {host.fingerprint}`"
        )
        await node.trust(host.fingerprint)
        await in_state(node, NodeState.READY)


async def test_a_key_that_has_changed(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path) as nodes:
        node, old = nodes[host.name], host.fingerprint
        faults.rekey(host)
        said = await refused(node, because=RefusedBecause.HOST_KEY_CHANGED)
        assert said == (
            f"{place_of(host)} shows the host key {host.fingerprint}, and not {old}; somebody may "
            "be in between; if the host was set up anew, trust this fingerprint by name"
        )
        await node.trust(host.fingerprint)
        await in_state(node, NodeState.READY)


# --- keys


async def test_a_key_that_does_not_fit(hosts: list[Host], tmp_path: Path) -> None:
    host, key = hosts[0], key_at(tmp_path / "other")
    wrong = replace(node_config(host), identity_file=str(key))
    async with fleet_over([host], tmp_path, ready=False, entry=lambda _: wrong) as nodes:
        said = await refused(nodes[host.name])
        assert said.startswith(f"{place_of(host)} does not let '{USER}' in: tried {key}; ")
        assert "authorized_keys" in said


async def test_a_key_that_was_taken_out_comes_back_by_itself(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosts[0]
    monkeypatch.setattr(clock, "REFUSED_FIRST_S", 0.5)
    faults.ban(host)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        await refused(nodes[host.name])
        faults.unban(host)
        await in_state(nodes[host.name], NodeState.READY)


async def test_too_many_keys(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, MaxAuthTries="2")
    for name in ("id_ed25519", "id_ecdsa", "id_rsa"):
        key_at(tmp_path / "ssh" / name)
    async with fleet_over([host], tmp_path, ready=False, entry=keyless) as nodes:
        said = await refused(nodes[host.name])
        assert said.startswith(f"{place_of(host)} does not let '{USER}' in: too many keys: tried ")
        assert str(tmp_path / "ssh" / "id_rsa") in said
        assert said.endswith("; name the right key with identity_file")


async def test_a_key_with_a_passphrase_and_no_agent(hosts: list[Host], tmp_path: Path) -> None:
    host, key = hosts[0], key_at(tmp_path / "closed", passphrase="secret")
    entry = replace(node_config(host), identity_file=str(key))
    async with fleet_over([host], tmp_path, ready=False, entry=lambda _: entry) as nodes:
        assert await refused(nodes[host.name]) == (
            f"{host.name}: there is no key to log in with; "
            f"not used: {key} (it has a passphrase: add it to the agent with ssh-add)"
        )


# --- the agent


async def test_an_agent_that_is_gone(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    with logins.ssh_agent(tmp_path, host.lab.client_key) as sock:
        pass
    async with fleet_over([host], tmp_path / "at", ready=False, entry=keyless, agent=sock) as nodes:
        node = nodes[host.name]
        said = await refused(node)
        assert (
            f"there was no key to try; not used: the agent at {sock} "
            "(no agent is there any more: start one, or set SSH_AUTH_SOCK anew)" in said
        )
        sock.unlink()
        with logins.ssh_agent(tmp_path, host.lab.client_key):
            await mended(node)


async def test_an_agent_that_is_locked(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    with logins.ssh_agent(tmp_path, host.lab.client_key) as sock:
        logins.lock(sock, tmp_path)
        async with fleet_over(
            [host], tmp_path / "at", ready=False, entry=keyless, agent=sock
        ) as nodes:
            node = nodes[host.name]
            said = await refused(node)
            assert (
                f"not used: the agent at {sock} "
                "(it offers no key: add one with ssh-add, or unlock it with ssh-add -X)" in said
            )
            logins.unlock(sock, tmp_path)
            await mended(node)


async def test_an_agent_that_refuses_to_sign(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    with logins.ssh_agent(tmp_path, host.lab.client_key, options=("-c",)) as sock:
        async with fleet_over(
            [host], tmp_path / "at", ready=False, entry=keyless, agent=sock
        ) as nodes:
            said = await refused(nodes[host.name])
            assert said.startswith(
                f"{place_of(host)} does not let '{USER}' in, since the agent at {sock} "
                "did not sign with its key "
            )
            assert ": it refused to; unlock it with ssh-add -X, say yes" in said


# --- what the server asks for


async def test_a_server_that_asks_for_a_password(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, PasswordAuthentication="yes", PubkeyAuthentication="no")
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        assert await refused(node) == (
            f"{place_of(host)} lets '{USER}' in by password only, and llmgw types none; "
            "allow keys there (PubkeyAuthentication yes in its sshd_config) and add one to the "
            f"authorized_keys of '{USER}'"
        )
        host.undo["sshd settings"]()
        await mended(node)


async def test_a_server_that_asks_for_a_second_factor(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(
        host,
        KbdInteractiveAuthentication="yes",
        AuthenticationMethods="publickey,keyboard-interactive",
    )
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        assert await refused(nodes[host.name]) == (
            f"{place_of(host)} took the key of '{USER}' and asks for a second factor too "
            "(keyboard-interactive); llmgw types none: in its sshd_config, `AuthenticationMethods "
            f"publickey` in a block `Match User {USER}` lets it in by key alone"
        )


# --- the account


async def test_an_account_that_has_expired(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.expire(host)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        said = await refused(nodes[host.name])
        assert said.startswith(f"{place_of(host)} does not let '{USER}' in: tried ")
        assert "the log of its SSH server says more (an account that is locked, expired" in said


async def test_an_account_that_pam_closes(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, UsePAM="yes")
    logins.expire(host)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        said = await refused(nodes[host.name])
        assert said.startswith(f"{place_of(host)} hung up over the login of '{USER}'; it said: ")
        assert "expired" in said


@pytest.mark.parametrize("pam", ["no", "yes"])
async def test_a_host_that_lets_nobody_in_at_present(
    hosts: list[Host], tmp_path: Path, pam: str
) -> None:
    """It comes back by itself and soon, as after a reboot."""
    host = hosts[0]
    logins.sshd(host, UsePAM=pam)
    logins.root_file(host, "/etc/nologin", "down for maintenance\n")
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        said = await lost(node, "down for maintenance")
        if pam == "no":
            assert said == (
                f"{host.name} lets nobody but root in at present (/etc/nologin there): "
                "down for maintenance"
            )
        host.undo["/etc/nologin"]()
        await in_state(node, NodeState.READY)


async def test_a_shell_that_is_none(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.shell(host, "/usr/sbin/nologin")
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        assert await refused(node, because=RefusedBecause.SHELL) == (
            f"{host.name} has no usable shell for this login: "
            "This account is currently not available.; "
            "give it an ordinary one (chsh -s /bin/sh), and no ForceCommand or command="
        )
        host.undo["passwd"]()
        await mended(node)


async def test_a_shell_that_is_restricted(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.root_file(host, "/usr/local/bin/rsh", '#!/bin/sh\nexec bash -r "$@"\n', mode=0o755)
    logins.shell(host, "/usr/local/bin/rsh")
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        said = await refused(nodes[host.name], because=RefusedBecause.SHELL)
        assert f"{host.name} has no usable shell for this login: bash: " in said
        assert "restricted" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo backups only; exit 3", ": backups only; give it"),
        ("internal-sftp", ": This service allows sftp connections only.; give it"),
    ],
)
async def test_a_command_that_is_forced(
    hosts: list[Host], tmp_path: Path, command: str, words: str
) -> None:
    host = hosts[0]
    logins.sshd(host, ForceCommand=command)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        said = await refused(nodes[host.name], because=RefusedBecause.SHELL)
        assert f"{host.name} has no usable shell for this login{words}" in said


# --- what must just work


async def test_banners_and_noise(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.root_file(host, "/etc/lab-banner", "Authorised use only.\n" * 30)
    logins.sshd(host, Banner="/etc/lab-banner", PrintMotd="yes")
    noise = "echo Welcome back; echo '@@BEGIN 0'; printf '\\377'; echo warn >&2; PATH=/nowhere\n"
    for name in (".bashrc", ".profile", ".bash_profile"):
        logins.write(host, name, noise)
    async with fleet_over([host], tmp_path) as nodes:
        await well(nodes[host.name])


SHELLS = {
    "fish": (".config/fish/config.fish", "echo hello from fish\nset -x PATH /nowhere\n"),
    "tcsh": (".cshrc", "echo hello from tcsh\n"),
    "zsh": (".zshenv", "echo hello from zsh\n"),
    "busybox": (".profile", "echo hello from ash\n"),
}


@pytest.mark.parametrize("name", SHELLS)
async def test_another_login_shell(hosts: list[Host], tmp_path: Path, name: str) -> None:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    host = hosts[0]
    if name == "busybox":
        logins.root_file(host, "/usr/local/bin/ash", f'#!/bin/sh\nexec {found} ash "$@"\n',
                         mode=0o755)  # fmt: skip
        found = "/usr/local/bin/ash"
    logins.shell(host, found)
    logins.write(host, *SHELLS[name])
    async with fleet_over([host], tmp_path) as nodes:
        await well(nodes[host.name])


async def test_processes_that_are_hidden(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.hide_processes(host)
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        assert node.facts is not None
        assert cautions(node.facts) == ()
        await well(node)


# --- what the host lacks


async def test_a_host_without_anything_to_fetch_with(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.hide(host, "curl", "wget", "python3")
    async with (
        serving(Shelf({"m.gguf": b"weights"}), f"{host.lab.ground.net}.1") as shelf,
        fleet_over([host], tmp_path) as nodes,
    ):

        async def push(*_: object) -> None:
            raise RemoteFailed("the link for pushing is down", exit_status=-1)

        async def fetch(**more: object) -> str:
            with pytest.raises(RemoteFailed) as failed:
                await ensure_weights(
                    nodes[host.name],
                    shelf.job(),
                    progress=lambda _: None,
                    **more,  # type: ignore[arg-type]
                )
            return str(failed.value)

        why = "the node has none of curl, wget and python3 to fetch with; install curl there"
        assert await fetch() == f"qwen/v1.0 could not be brought to {host.name}: {why}"
        said = await fetch(push=push)
        assert "the link for pushing is down" in said
        assert why in said
        assert shelf.asked == []


async def test_a_home_that_cannot_be_written(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.read_only(host)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        assert await refused(node, because=RefusedBecause.CONFIG) == (
            f"{host.name}: llmgw's directory /home/{USER}/.local/state/llmgw cannot be made there "
            "(Read-only file system); set state_dir in the node's entry to a place that its user "
            "may write"
        )
        host.undo["read only"]()
        await mended(node)
    elsewhere = replace(node_config(host), state_dir=f"/var/tmp/llmgw-{USER}")
    logins.read_only(host)
    async with fleet_over([host], tmp_path / "two", entry=lambda _: elsewhere) as nodes:
        await well(nodes[host.name])


async def test_a_home_that_became_read_only_keeps_what_runs(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file system does after an error: what runs is still led, nothing new comes there."""
    host = hosts[0]
    monkeypatch.setattr(session, "STATE_RETRY_S", 0.3)
    async with fleet_over([host], tmp_path) as nodes:
        await nodes[host.name].start_instance(instance())
    logins.read_only(host)
    async with fleet_over([host], tmp_path / "two") as nodes:
        node = nodes[host.name]
        assert (node.instances or {})["i"].state is InstanceState.RUNNING
        assert node.facts is not None
        (caution,) = cautions(node.facts)
        assert caution == (
            f"nothing can be written in /home/{USER}/.local/state/llmgw (Read-only file system), "
            "so nothing can be started; mend it, or set state_dir to another place"
        )
        host.undo["read only"]()
        await until(lambda: node.facts is not None and not cautions(node.facts), "it is seen")
        await node.stop_instance("i", grace_s=5)


async def test_a_disk_that_is_full(
    hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosts[0]
    monkeypatch.setattr(session, "STATE_RETRY_S", 0.3)
    async with fleet_over([host], tmp_path / "before"):
        pass
    faults.fill(host)
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        await in_state(node, NodeState.READY)
        assert node.facts is not None
        (caution,) = cautions(node.facts)
        assert caution == (
            f"the disk at /home/{USER}/.local/state/llmgw is full: nothing can be started; "
            "free some space"
        )
        faults.unfill(host)
        await in_state(node, NodeState.READY)
        await until(lambda: node.facts is not None and not cautions(node.facts), "it is seen")
        await well(node)


async def test_a_home_and_a_tmp_that_run_no_programs(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    own = ".local/state/llmgw/engines/xllamacpp"
    logins.write(host, f"{own}/.ready", "")
    logins.write(host, "bin/llama-server", "#!/bin/sh\necho version: 1\n")
    (host.home / "bin" / "llama-server").chmod(0o755)
    faults.noexec(host)
    entry = replace(node_config(host), engines={"llamacpp": "~/bin/llama-server"})
    async with fleet_over([host], tmp_path, entry=lambda _: entry) as nodes:
        node = nodes[host.name]
        assert node.facts is not None
        assert cautions(node.facts) == (
            f"cannot be used: /home/{USER}/bin/llama-server may not be run (its mode, or a file "
            f"system that is mounted noexec), the engine in /home/{USER}/{own} cannot be run from "
            "a file system that is mounted noexec; correct engines in its entry",
            f"no program can be run from /home/{USER}/.local/state/llmgw (mounted noexec), so "
            "llmgw installs no engine there; set state_dir to another place, or name an engine "
            "under engines",
        )
        assert node.facts.engine("llamacpp") is None
        with pytest.raises(RemoteFailed, match="mounted noexec") as failed:
            await node.provision("llamacpp", progress=lambda _: None)
        assert "state_dir" in str(failed.value)
        await well(node)  # what lies elsewhere runs


async def test_a_clock_that_is_off_is_told_and_counts_for_nothing(
    hosts: list[Host], tmp_path: Path
) -> None:
    ahead, behind, near, _ = hosts
    for host, by in ((ahead, 3600 * 5), (behind, -600), (near, 3)):
        logins.root_file(
            host,
            "/usr/local/bin/date",
            f'#!/bin/sh\n[ "$1" = +%s.%N ] || exec /bin/date "$@"\n'
            f"echo $(($(/bin/date +%s) + {by})).5\n",
            mode=0o755,
        )
    async with fleet_over([ahead, behind, near], tmp_path) as nodes:
        said = {name: cautions(node.facts) for name, node in nodes.items() if node.facts}
        assert said == {
            ahead.name: ("its clock is 5 h ahead; set it (NTP)",),
            behind.name: ("its clock is 10 min behind; set it (NTP)",),
            near.name: (),
        }
        for node in nodes.values():
            await well(node)


# --- limits of the server


async def test_a_server_that_takes_no_more_logins(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, MaxStartups="1:100:1")
    other = socket.create_connection((host.address, 22))
    while not other.recv(64).startswith(b"SSH-"):  # the visit that saw it start still counts
        other.close()
        other = socket.create_connection((host.address, 22))
    with other:
        async with fleet_over([host], tmp_path, ready=False) as nodes:
            node = nodes[host.name]
            said = await lost(node, "without a word")
            assert said.startswith(f"{place_of(host)} closed the connection without a word (")
            assert "too many logins at once there (MaxStartups), or it keeps this" in said
            other.close()
            await in_state(node, NodeState.READY)


async def test_a_server_that_gives_one_session(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, MaxSessions="1")
    async with fleet_over([host], tmp_path, ready=False) as nodes:
        node = nodes[host.name]
        said = await lost(node, "MaxSessions")
        assert f"{host.name} gives no further session on its connection" in said
        host.undo["sshd settings"]()
        await in_state(node, NodeState.READY)


async def test_a_server_that_gives_three_sessions(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    logins.sshd(host, MaxSessions="3")
    async with fleet_over([host], tmp_path) as nodes:
        await well(nodes[host.name])
