"""llama.cpp's server from the xllamacpp package, with llama-server's own option names.

Copied to a node as one file (after ``llamacpp_options``) beside a replica's record; it needs Python
3.9, the standard library and xllamacpp there. Two processes: the first takes signals and tells how
far loading is, the second becomes the server. It cannot be one, because xllamacpp keeps Python's
lock for as long as a model loads, and a process that cannot run Python cannot answer SIGTERM.

Options beyond llama-server's:
  --model FOLDER/    its first split file, or its only GGUF file; an mmproj file there goes with it
  --try OPT[=VALUE]  as OPT VALUE, and left out where this xllamacpp has no such field

Exit status: 0 after SIGTERM or SIGINT, 1 when the server does not start, 64 for an option that
cannot be used, 66 for a file that cannot, 69 without xllamacpp, and the server's own when it dies.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from llmgw_core.engines.llamacpp_options import (
    BY_NAME,
    NO_INPUT,
    UNAVAILABLE,
    EnumWord,
    Setting,
    Trouble,
    parse,
)

STOP = (signal.SIGTERM, signal.SIGINT)
MOST_THREADS = 16
PR_SET_PDEATHSIG = 1


def given(settings: list[Setting], name: str) -> Any:
    """The last value of an option, or None."""
    option = BY_NAME[name]
    return next((s.value for s in reversed(settings) if s.option is option), None)


def find_files(model: str) -> tuple[str, str | None]:
    """The file to load for a path or a folder (``…/``), and an mmproj file beside it.

    Raises:
        Trouble: nothing there, nothing that can be loaded, or more than one choice.
    """
    if not model.endswith("/"):
        if not os.path.isfile(model):
            raise Trouble(f"there is no model file {model}", NO_INPUT)
        return model, None
    try:
        names = sorted(name for name in os.listdir(model) if name.lower().endswith(".gguf"))
    except OSError as error:
        raise Trouble(
            f"the model folder {model} cannot be read: {error.strerror}", NO_INPUT
        ) from error
    projectors = [name for name in names if "mmproj" in name.lower()]
    models = [name for name in names if name not in projectors]
    first = [name for name in models if "-00001-of-" in name]
    choice = first or models
    if len(choice) != 1:
        what = "no GGUF file" if not choice else f"{len(choice)} GGUF files to choose from"
        raise Trouble(f"the model folder {model} holds {what}; name one file", NO_INPUT)
    return model + choice[0], model + projectors[0] if projectors else None


def bytes_to_read(model: str, mmproj: str | None) -> int:
    """Size of all files that loading reads, the other parts of a split model among them."""
    head, mark, tail = model.partition("-00001-of-")
    parts = [model]
    if mark and tail[:5].isdigit():
        count = int(tail[:5])
        parts = [f"{head}-{n:05d}-of-{tail}" for n in range(1, count + 1)]
    parts += [mmproj] if mmproj else []
    return sum(os.path.getsize(part) for part in parts if os.path.exists(part))


def usable_cores() -> float:
    """Cores that this process may use: its affinity, and its cgroup's quota where that is less."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "/")
    except OSError:
        return cores
    while True:
        try:
            with open(f"/sys/fs/cgroup{path.rstrip('/')}/cpu.max", encoding="utf-8") as file:
                quota, period = file.read().split()
            if quota != "max":
                cores = min(cores, int(quota) / int(period))
        except (OSError, ValueError):
            pass  # this level sets none
        if path in ("/", ""):
            return cores
        path = os.path.dirname(path)


def own_threads() -> int:
    """Half the cores, as generation is bound by memory, and never more than ``MOST_THREADS``."""
    return max(1, min(MOST_THREADS, int(usable_cores() / 2)))


# ---- the server's process


def fill(params: Any, settings: list[Setting], package: Any) -> None:
    """Set CommonParams' fields.

    Raises:
        Trouble: this xllamacpp has no such field or value, or a file cannot be read.
    """
    for setting in settings:
        for field in setting.option.fields.split():
            found = _find_field(params, field.split("|"))
            if found is None:
                if setting.optional:
                    continue
                raise Trouble(f"this xllamacpp ({_version(package)}) has no {setting.name}")
            owner, name = found
            try:
                value = _value(setting, getattr(owner, name), field, package)
                setattr(owner, name, value)
            except (AttributeError, TypeError, ValueError, OverflowError) as error:
                if not setting.optional:
                    raise Trouble(
                        f"this xllamacpp ({_version(package)}) cannot take the value of "
                        f"{setting.name} ({error})"
                    ) from error
            else:
                _mark_chosen(params, name, package)
    # llama-server's own rule: an embedding has to be computed in one piece
    if params.embedding and params.n_batch > params.n_ubatch:
        params.n_batch = params.n_ubatch


def _mark_chosen(params: Any, name: str, package: Any) -> None:
    """Let a sampling option outrank what the model's file recommends."""
    bits = getattr(package, "common_params_sampling_config", None)
    bit = getattr(bits, f"COMMON_PARAMS_SAMPLING_CONFIG_{name.upper()}", None)
    if bit is not None:
        params.sampling.user_sampling_config |= int(bit)


def _find_field(params: Any, spellings: list[str]) -> tuple[Any, str] | None:
    for spelling in spellings:
        owner: Any = params
        *path, name = spelling.split(".")
        for step in path:
            owner = getattr(owner, step, None)
        if hasattr(owner, name):
            return owner, name
    return None


def _version(package: Any) -> str:
    return str(getattr(package, "__version__", "of unknown version"))


def _value(setting: Setting, current: Any, field: str, package: Any) -> Any:
    """What to assign, by the kind of the option and by what the field holds now."""
    kind, value = setting.option.kind, setting.value
    if isinstance(value, EnumWord):
        return getattr(getattr(package, value.enum), value.member)
    if kind == "rerank" and field == "pooling_type":
        return package.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    if kind == "words":
        return value[0] if isinstance(current, str) else type(current)(value)
    if kind == "keys":
        lines = [line.strip() for line in _read(value, setting.name).splitlines()]
        return [line for line in lines if line and not line.startswith("#")]
    if kind == "file":
        return _read(value, setting.name)
    if kind == "shares":
        return value + [0.0] * (len(current) - len(value))
    if kind == "lora":
        return current + [_adapter(package, path, scale) for path, scale in value]
    return value


def _adapter(package: Any, path: str, scale: float) -> Any:
    adapter = package.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, scale
    return adapter


def _read(path: str, option: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"the file {path} of {option} cannot be read ({error})", NO_INPUT) from error


def serve(settings: list[Setting], loaded: int) -> int:
    """Become the server; only returns where it does not start. ``loaded`` is told when it has."""
    try:
        import xllamacpp
    except ImportError as error:
        raise Trouble(
            f"xllamacpp cannot be imported by {sys.executable} ({error}); install it there",
            UNAVAILABLE,
        ) from error
    params = xllamacpp.CommonParams()
    fill(params, settings, xllamacpp)
    began = time.monotonic()
    say(f"xllamacpp {_version(xllamacpp)} loads {params.model.path}")
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        say(f"the server did not start ({error})")
        if is_taken(params.hostnames[0], params.port):
            # its own line about this may not have been written before it gave up
            say(f"port {params.port} is taken")
        return 1
    say(f"ready on {server.listening_address} after {time.monotonic() - began:.1f} s")
    os.write(loaded, b"1")
    while True:
        signal.pause()


def is_taken(host: str, port: int) -> bool:
    """Whether somebody listens on this address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


# ---- the first process


def say(text: str) -> None:
    """One line of our own in the log."""
    sys.stderr.write(f"llmgw: {text}\n")
    sys.stderr.flush()


def prepare(argv: list[str]) -> tuple[list[Setting], int]:
    """Settings with files and threads resolved, and how many bytes loading reads."""
    settings = parse(argv)
    source = given(settings, "--model")
    if not source:
        raise Trouble("the option --model is missing")
    model, projector = find_files(source)
    if model != source:
        say(f"{source} is {os.path.basename(model)}")
    settings += parse(["--model", model])
    if projector and not given(settings, "--mmproj") and not given(settings, "--no-mmproj"):
        settings += parse(["--mmproj", projector])
    threads = given(settings, "--threads")
    if threads is None or threads < 1:
        threads = own_threads()
        say(f"{threads} threads, half of what it may use at most; cpu_cores sets another number")
        settings += parse(["--threads", str(threads)])
    if given(settings, "--threads-batch") is None:
        settings += parse(["--threads-batch", str(threads)])
    return settings, bytes_to_read(model, given(settings, "--mmproj"))


def main(argv: list[str]) -> int:
    """Run the server in a second process until it ends or a signal asks for the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP, signal.SIGCHLD})
    try:
        settings, total = prepare(argv)
    except Trouble as trouble:
        say(f"error: {trouble}")
        return trouble.status
    # a crash of the server is told by its signal; gigabytes of core help nobody
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    loaded, tell = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(_second(settings, tell, parent))
    os.close(tell)
    return watch(child, loaded, total)


def _second(settings: list[Setting], tell: int, parent: int) -> int:
    for number in STOP:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOP, signal.SIGCHLD})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    try:
        return serve(settings, tell)
    except Trouble as trouble:
        say(f"error: {trouble}")
        return trouble.status


def watch(child: int, loaded: int, total: int) -> int:
    """Tell how far loading is, and end with the child or because of a signal."""
    os.set_blocking(loaded, False)
    last, ready = -1, False
    while True:
        came = signal.sigtimedwait({*STOP, signal.SIGCHLD}, 60 if ready else 0.5)
        if came is not None and came.si_signo in STOP:
            say(f"stopping on {signal.Signals(came.si_signo).name}")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 0
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return _ended(status)
        ready = ready or _has_come(loaded)
        percent = 100 if ready else share_read(child, total)
        if percent is not None and percent > last and last < 100:
            last = percent
            say(f"loaded {percent} %")


def _has_come(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return False


def share_read(pid: int, total: int) -> int | None:
    """Percent of the files that a process has read or mapped, 99 at most; None where unknown."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            read = int(file.readline().split()[1])
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            mapped = sum(int(line.split()[1]) for line in file if line.startswith("RssFile"))
    except (OSError, ValueError, IndexError):
        return None
    return min(99, max(read, mapped * 1024) * 100 // total) if total else None


def _ended(status: int) -> int:
    """The exit status for a child that ended by itself; a signal is handed on."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    # a signal to the whole group may reach the child first
    if number in STOP and signal.sigtimedwait(STOP, 0.5) is not None:
        return 0
    say(f"the server was ended by {signal.Signals(number).name}")
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
