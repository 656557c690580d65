"""The probe: run for real under each shell, and its parsers on canned text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes import gpus
from llmgw_core.nodes.exec import ExecResult
from llmgw_core.nodes.facts import EngineFacts, Facts
from llmgw_core.nodes.hardware import count_cores, cpu_list, memory_gb
from llmgw_core.nodes.probe import ProbeHints, Timing, clock_skew_s, parse_df, parse_probe, probe
from llmgw_core.nodes.script import load
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local

__all__ = ["local"]


def program(folder: Path, name: str, text: str) -> Path:
    """A program of sh; returns its path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def on_path(local: LocalExec, folder: Path) -> None:
    local.env["PATH"] = f"{folder}:{local.env['PATH']}"


async def test_this_machine(local: LocalExec, tmp_path: Path) -> None:
    hints = ProbeHints(str(tmp_path / "st ate"))
    facts = await probe(local, hints)
    assert local.calls == 1
    assert facts.arch == os.uname().machine
    assert facts.hostname == os.uname().nodename
    assert facts.os
    assert facts.cores_logical is not None
    assert 0 < facts.cores_logical <= len(os.sched_getaffinity(0))
    assert facts.memory_gb is not None
    assert facts.memory_available_gb is not None
    assert 0 < facts.memory_available_gb <= facts.memory_gb
    assert facts.disk_free_gb is not None
    free = os.statvfs(tmp_path)
    assert facts.disk_free_gb == pytest.approx(free.f_bavail * free.f_frsize / (1 << 30), abs=5)
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.clock_skew_s is not None
    assert abs(facts.clock_skew_s) < 5
    assert facts.home == str(local.home)
    assert facts.state_dir == str((tmp_path / "st ate").resolve())
    assert facts.state_writable
    assert facts.state_executable
    assert not list((tmp_path / "st ate").iterdir())


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        (None, {}, "{home}/.local/state/llmgw"),
        (None, {"LLMGW_DIR": "{home}/elsewhere"}, "{home}/elsewhere"),
        ("~/of mine", {"LLMGW_DIR": "{home}/elsewhere"}, "{home}/of mine"),
        ("in/home", {}, "{home}/in/home"),
    ],
)
async def test_where_the_state_lies(
    local: LocalExec, given: str | None, env: dict[str, str], expected: str
) -> None:
    home = str(local.home)
    local.env.update({name: value.format(home=home) for name, value in env.items()})
    facts = await probe(local, ProbeHints(given))
    assert facts.state_dir == expected.format(home=home)


async def test_a_shared_home_gets_a_level_for_each_machine(
    local: LocalExec, tmp_path: Path
) -> None:
    program(
        tmp_path / "nfs tools",
        "stat",
        'case $* in "-f -c %T "*) echo nfs;; *) exec /usr/bin/stat "$@";; esac',
    )
    on_path(local, tmp_path / "nfs tools")
    facts = await probe(local, ProbeHints(None))
    host = os.uname().nodename
    assert facts.state_dir == f"{local.home}/.local/state/llmgw/host-{host}"
    assert (await probe(local, ProbeHints(facts.state_dir))).state_dir == facts.state_dir


async def test_a_state_directory_that_cannot_be(local: LocalExec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    facts = await probe(local, ProbeHints(str(tmp_path / "file" / "x")))
    assert facts.state_writable is False
    assert facts.state_executable is None
    assert facts.state_dir == str(tmp_path / "file" / "x")
    assert facts.cores_logical is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_noexec_state_directory_is_told(local: LocalExec, tmp_path: Path) -> None:
    mount = tmp_path / "noexec"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(mount)], check=True)
    try:
        facts = await probe(local, ProbeHints(str(mount)))
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
    assert (facts.state_writable, facts.state_executable) == (True, False)


async def test_engines_are_found_where_they_are(local: LocalExec, tmp_path: Path) -> None:
    tools = tmp_path / "engines"
    server = program(tools, "llama-server", "echo 'version: 6123 (a1b2c3d)' >&2\necho built >&2")
    vllm = program(tools, "vllm", "sleep 60")
    vllm.write_text("#!/nonexistent/python\nimport vllm\n")
    on_path(local, tools)
    facts = await probe(local, ProbeHints(str(tmp_path / "s"), {}, (sys.executable, "/no/python")))
    assert facts.engines is not None
    assert facts.engine("llamacpp") == EngineFacts(
        "llamacpp", "llama-server", str(server), "6123 (a1b2c3d)"
    )
    assert EngineFacts("vllm", "vllm", str(vllm), None) in facts.engines


async def test_engines_at_configured_paths(local: LocalExec, tmp_path: Path) -> None:
    folder = tmp_path / "my engines"
    server = program(folder, "server", "echo 'version: 1 (abc)'")
    site = tmp_path / "site"
    for name, version in (("xllamacpp", "2026.9.1"), ("vllm", "0.11.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        # what is asked for its version only must not be loaded
        (site / f"{name}.py").write_text("raise SystemExit('imported')")
    python = program(folder, "python3", f"PYTHONPATH='{site}' exec {sys.executable} -S \"$@\"")
    script = folder / "vllm"
    script.write_text(f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\nimport vllm\n")
    script.chmod(0o755)
    hints = ProbeHints(str(tmp_path / "s"), {"llamacpp": str(server)}, (str(python),))
    facts = await probe(local, hints)
    assert facts.engines == (
        EngineFacts("llamacpp", "llama-server", str(server), "1 (abc)"),
        EngineFacts("llamacpp", "xllamacpp", str(python), "2026.9.1"),
        EngineFacts("vllm", "vllm", str(python), "0.11.0"),
    )
    hints = ProbeHints(str(tmp_path / "s"), {"llamacpp": str(python), "vllm": str(python)})
    facts = await probe(local, hints)
    assert [engine.kind for engine in facts.engines or ()] == ["xllamacpp", "vllm"]


async def test_an_engine_that_does_not_run_is_none(local: LocalExec, tmp_path: Path) -> None:
    server = program(tmp_path / "bin", "llama-server", "echo cannot find libcuda.so.1; exit 127")
    facts = await probe(local, ProbeHints(None, {"llamacpp": str(server)}))
    assert facts.engine("llamacpp") is None
    broken = program(tmp_path / "bin", "crashes", "kill -s ILL $$")
    facts = await probe(local, ProbeHints(None, {"llamacpp": str(broken)}))
    assert facts.engine("llamacpp") is None


async def test_the_venv_of_llmgw_counts_when_it_is_whole(local: LocalExec, tmp_path: Path) -> None:
    venv = tmp_path / "s" / "engines" / "xllamacpp"
    venv.mkdir(parents=True)
    python = program(venv / "bin", "python", "echo 'xllamacpp 2026.9.1'")
    hints = ProbeHints(str(tmp_path / "s"))
    assert (await probe(local, hints)).engine("llamacpp") is None
    (venv / ".ready").touch()
    found = (await probe(local, hints)).engine("llamacpp")
    assert found == EngineFacts("llamacpp", "xllamacpp", str(python), "2026.9.1")


async def test_gpus_from_the_drivers_tool(local: LocalExec, tmp_path: Path) -> None:
    on_path(local, tmp_path / "tools with gpu")
    program(
        tmp_path / "tools with gpu",
        "nvidia-smi",
        "echo 'GPU-1, 0, NVIDIA H200, 143771, 512, 37, 570.133.20'",
    )
    facts = await probe(local, ProbeHints(str(tmp_path / "s")))
    assert facts.gpus is not None
    (gpu,) = facts.gpus
    assert (gpu.name, gpu.driver, gpu.healthy) == ("NVIDIA H200", "570.133.20", True)


async def test_a_driver_that_hangs_does_not_hide_the_node(
    local: LocalExec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what hangs keeps its descriptors and cannot be killed (a session of its own)."""
    tools = tmp_path / "tools that hang"
    pidfile = tmp_path / "pid"
    program(tools, "nvidia-smi", f"setsid sleep 600 & echo $! >'{pidfile}'\nwait")
    # the bound of ten seconds, shortened for the test
    program(tools, "timeout", 'shift 2; s=$1; shift; exec /usr/bin/timeout -k 1 "$((s / 10))" "$@"')
    on_path(local, tools)
    try:
        facts = await probe(local, ProbeHints(str(tmp_path / "s")))
    finally:
        subprocess.run(["kill", pidfile.read_text().strip()], check=False)
    assert facts.gpus is None or all(gpu.healthy is False for gpu in facts.gpus)
    assert facts.memory_gb is not None
    assert facts.state_writable


async def test_tools_that_print_rubbish(local: LocalExec, tmp_path: Path) -> None:
    tools = tmp_path / "tools of rubbish"
    for name in ("nvidia-smi", "rocm-smi", "amd-smi", "llama-server"):
        program(tools, name, r"printf '\377\000x\ty\n\n, , ,\n'; echo e\ rr >&2")
    on_path(local, tools)
    facts = await probe(local, ProbeHints(str(tmp_path / "s")))
    assert facts.gpus == ()
    assert facts.engine("llamacpp") is not None
    assert facts.boot_id is not None


class DeadExec:
    """A node on which nothing runs."""

    async def script(self, script: str, *args: str, timeout_s: float = 20.0) -> ExecResult:
        return ExecResult(b"", b"sh: syntax error\n", 2)

    async def feed(
        self, script: str, *args: str, payload: bytes, timeout_s: float = 60.0
    ) -> ExecResult:
        raise NotImplementedError

    def stream(self, script: str, *args: str, answer: bytes | None = None) -> AsyncIterator[bytes]:
        raise NotImplementedError


async def test_a_node_that_cannot_run_the_probe() -> None:
    with pytest.raises(RemoteFailed, match="syntax error"):
        await probe(DeadExec(), ProbeHints())


# --- cgroups, on made-up trees


def limits(local: LocalExec, root: Path, kind: str, place: str) -> dict[str, str]:
    """Run cgroup.sh's walk over a tree."""
    script = load("lib.sh", "cgroup.sh") + (
        "m_limit='' m_usage='' m_stat='' m_key='' quotas=''\n"
        f"each_level memory_{kind} '{root}' '{place}'\neach_level cpu_{kind} '{root}' '{place}'\n"
        'memory_now\necho "memory:$limits"\necho "cpu:$quotas"\n'
    )
    done = subprocess.run(
        [str(local.tools / "sh"), "-s"],
        input=script,
        env=local.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return dict(line.split(":", 1) for line in done.stdout.splitlines())


def test_the_tightest_level_of_cgroup_v2_counts(local: LocalExec, tmp_path: Path) -> None:
    inner = tmp_path / "user.slice" / "session"
    inner.mkdir(parents=True)
    (tmp_path / "user.slice" / "memory.max").write_text("4000\n")
    (tmp_path / "user.slice" / "memory.current").write_text("1000\n")
    (tmp_path / "user.slice" / "memory.stat").write_text("anon 1\ninactive_file 300\nfile 2\n")
    (tmp_path / "user.slice" / "cpu.max").write_text("150000 100000\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "cpu.max").write_text("max 100000\n")
    found = limits(local, tmp_path, "v2", "/user.slice/session")
    assert found == {"memory": "4000 1000 300", "cpu": " 150000/100000"}
    assert limits(local, tmp_path, "v2", "/elsewhere") == {"memory": "", "cpu": ""}


def test_cgroup_v1_counts_also_at_the_root_of_a_container(local: LocalExec, tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert limits(local, tmp_path, "v1", "/docker/0123") == {"memory": "", "cpu": ""}
    (tmp_path / "memory.limit_in_bytes").write_text("8589934592\n")
    (tmp_path / "memory.usage_in_bytes").write_text("1073741824\n")
    (tmp_path / "memory.stat").write_text("cache 1\ntotal_inactive_file 4096\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
    found = limits(local, tmp_path, "v1", "/docker/0123")
    assert found == {"memory": "8589934592 1073741824 4096", "cpu": " 50000/100000"}


# --- parsers


def test_lists_of_cpus() -> None:
    assert cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert cpu_list("") == frozenset()
    assert cpu_list("x,-,1-,3") == {3}


@pytest.mark.parametrize(
    ("allowed", "siblings", "online", "quotas", "expected"),
    [
        ("0-7", ["0,4", "1,5", "2,6", "3,7"] * 2, "8", [], (8.0, 4.0)),
        ("0-1,4", ["0,4", "1,5", "2,6", "3,7"] * 2, "8", [], (3.0, 2.0)),
        # a mask for processors that could be added some day
        ("0-255", ["0", "1"], "2", [], (2.0, 2.0)),
        ("0-7", ["0,4", "1,5", "2,6", "3,7"] * 2, "8", ["250000/100000"], (2.5, 2.5)),
        ("0-7", ["0,4", "1,5", "2,6", "3,7"] * 2, "8", ["600000/100000"], (6.0, 4.0)),
        ("0-3", [], "4", ["50000/100000", "x", "1/0"], (0.5, None)),
        ("0-3", [], None, [], (4.0, None)),
        (None, [], None, [], (None, None)),
    ],
)
def test_cores(
    allowed: str | None,
    siblings: list[str],
    online: str | None,
    quotas: list[str],
    expected: tuple[float | None, float | None],
) -> None:
    assert count_cores(allowed, siblings, online, quotas) == expected


def test_memory_within_its_cgroup() -> None:
    gib = 1 << 20
    assert memory_gb(str(8 * gib), str(5 * gib), "") == (8.0, 5.0)
    assert memory_gb(str(8 * gib), None, "") == (8.0, None)
    assert memory_gb(None, None, "") == (None, None)
    assert memory_gb(str(8 * gib), str(5 * gib), f"{16 << 30} 0 0") == (8.0, 5.0)
    assert memory_gb(str(8 * gib), str(5 * gib), f"{4 << 30} {2 << 30} {1 << 30}") == (4.0, 3.0)
    assert memory_gb(str(8 * gib), str(1 * gib), f"{4 << 30} {2 << 30} -") == (4.0, 1.0)
    assert memory_gb(str(8 * gib), str(5 * gib), f"{4 << 30} - -") == (4.0, 5.0)


def test_free_space() -> None:
    text = (
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 264212084 1 {} 22% /"
    )
    assert parse_df(text.format(3 << 20).splitlines()) == 3.0
    assert parse_df(["Filesystem", "//host/my share  100  50  1048576  50% /mnt/x y"]) == 1.0
    assert parse_df([]) is None
    assert parse_df(["df: /x: No such file"]) is None


def test_skew_is_taken_in_the_middle_of_what_the_link_took() -> None:
    # asked at 1000, 4 s on the way and back, 6 s of work: read at 1002 by our clock
    assert clock_skew_s("1012.5", "600", Timing(1000.0, 1010.0)) == pytest.approx(10.5)
    assert clock_skew_s("1002", None, Timing(1000.0, 1004.0)) == pytest.approx(0.5)
    assert clock_skew_s("1002.%N", None, Timing(1000.0, 1004.0)) == pytest.approx(0.5)
    assert clock_skew_s(None, "1", Timing(0.0, 1.0)) is None
    assert clock_skew_s("later", "1", Timing(0.0, 1.0)) is None


def test_what_is_not_said_is_unknown() -> None:
    assert parse_probe(b"", Timing(0, 0)) == Facts()
    assert parse_probe(b"boot\tunknown\nnonsense\n\xff\t\xff\n", Timing(0, 0)) == Facts()


def test_nvidia_lines_with_and_without_numbers() -> None:
    found = gpus.parse_nvidia(
        [
            "GPU-b, 1, NVIDIA GB10, [N/A], [N/A], 3, 580.95.05",
            "GPU-a, 0, NVIDIA A100-SXM4-80GB, 81920, 1024, [N/A], 570.133.20",
            "GPU-c, 2, NVIDIA L4, [GPU requires reset], [GPU requires reset], ERR!, 570.133.20",
            "No devices were found",
            "",
        ]
    )
    assert [gpu.uuid for gpu in found] == ["GPU-a", "GPU-b", "GPU-c"]
    first, second, third = found
    assert (first.memory_gb, first.memory_used_gb, first.utilization) == (80.0, 1.0, None)
    assert (second.memory_gb, second.utilization, second.healthy) == (None, 0.03, True)
    assert third.healthy is False


def smi(status: str, lines: list[str], pci: list[str]) -> Facts:
    """Facts where nvidia-smi ended so and sysfs lists these."""
    text = [f"nvidia.status\t{status}", *(f"nvidia.out\t{line}" for line in lines)]
    text += ["rocm.status\t127", "amd_static.status\t127"]
    text += [f"pci.out\t{line}" for line in pci]
    return parse_probe("\n".join(text).encode(), Timing(0, 0))


CARD = "0000:18:00.0 0x10de - -"


@pytest.mark.parametrize(
    ("status", "pci", "healthy"),
    [
        ("124", [CARD], [False]),  # timed out
        ("hung", [CARD, CARD], [False, False]),
        ("9", [CARD], [False]),
        ("127", [CARD], [False]),  # a card without its driver
        ("127", ["0000:00:02.0 0x1234 - -"], []),  # a virtual screen
        ("9", [], []),
        ("6", [], []),
        ("124", [], None),
        ("hung", [], None),
    ],
)
def test_a_driver_that_does_not_answer(
    status: str, pci: list[str], healthy: list[bool] | None
) -> None:
    found = smi(status, ["NVIDIA-SMI has failed"], pci).gpus
    assert (None if found is None else [gpu.healthy for gpu in found]) == healthy


def test_rocm_smi() -> None:
    card = {
        "Unique ID": "0xabc",
        "GPU use (%)": "12",
        "VRAM Total Memory (B)": str(192 << 30),
        "VRAM Total Used Memory (B)": str(1 << 30),
        "Card Series": "AMD Instinct MI300X",
    }
    document = {"card1": {"GPU use (%)": "N/A"}, "card0": card, "system": {"Driver version": "6.8"}}
    text = f"WARNING: AMD GPU device(s) is/are in a low-power state.\n{json.dumps(document)}\n\n"
    found = gpus.parse_rocm(text)
    assert found is not None
    first, second = found
    assert (first.uuid, first.name, first.driver) == ("0xabc", "AMD Instinct MI300X", "6.8")
    assert (first.memory_gb, first.memory_used_gb, first.utilization) == (192.0, 1.0, 0.12)
    assert (second.index, second.memory_gb, second.utilization) == (1, None, None)
    assert gpus.parse_rocm("no rocm here") is None
    assert gpus.parse_rocm("{broken") is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_amd_smi(wrapped: bool) -> None:
    static: object = [
        {
            "gpu": 0,
            "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1"},
            "vram": {"size": {"value": 196592, "unit": "MB"}},
            "driver": {"version": "6.12"},
        }
    ]
    metric: object = [
        {
            "gpu": 0,
            "usage": {"gfx_activity": {"value": 50, "unit": "%"}},
            "mem_usage": {"used_vram": {"value": 1024, "unit": "MB"}},
        }
    ]
    if wrapped:
        static, metric = {"gpu_data": static}, {"gpu_data": metric}
    found = gpus.parse_amd_smi(json.dumps(static), json.dumps(metric))
    assert found is not None
    (gpu,) = found
    assert (gpu.name, gpu.driver, gpu.utilization) == ("AMD Instinct MI300X", "6.12", 0.5)
    assert gpu.memory_gb == pytest.approx(191.98, abs=0.01)
    assert gpu.memory_used_gb == 1.0
    without = gpus.parse_amd_smi(json.dumps(static), "")
    assert without is not None
    assert without[0].utilization is None
    assert gpus.parse_amd_smi("", "") is None


def test_amd_cards_without_any_tool_come_from_sysfs() -> None:
    found = smi("127", [], [f"0000:03:00.0 0x1002 {8 << 30} {1 << 30}"]).gpus
    assert found is not None
    (gpu,) = found
    assert (gpu.vendor, gpu.memory_gb, gpu.memory_used_gb, gpu.healthy) == ("amd", 8.0, 1.0, None)
    line = gpus.parse_amd_line(f"abc /sys/class/drm/card1 {8 << 30} {1 << 30} 25")
    assert line is not None
    assert (line.index, line.utilization, line.memory_used_gb) == (1, 0.25, 1.0)
    assert gpus.parse_amd_line("x") is None


def test_a_probe_is_quick_where_nothing_hangs(local: LocalExec) -> None:
    """Jobs run side by side; this only guards against one that is always waited for."""
    script = load("lib.sh", "cgroup.sh", "probe.sh")
    before = time.monotonic()
    done = subprocess.run(
        [str(local.tools / "sh"), "-s", "=", "=", "="],
        input=script.encode(),
        env=local.env,
        capture_output=True,
        check=True,
    )
    took = next(line for line in done.stdout.splitlines() if line.startswith(b"took"))
    assert done.stderr == b""
    assert int(took.split()[1]) / 100 <= time.monotonic() - before + 0.1
    assert b".status\thung" not in done.stdout
