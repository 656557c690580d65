"""A process that is nobody's of ours, and writes down every signal that it gets.

    chaos_stranger.py WORD…

Run in a host by ``chaos_strangers.py``; the words are only there to be seen. Its standard output is
a file outside the host: first its pid, then a line for each signal, with who sent it. Imports
nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading

PRETEND = ("decoy", "llmgw")
"""A word of its command line and one of the same length to be seen in its place."""
LISTEN = "LAB_LISTEN"
"""Variable with a port to answer on."""
_ARG_START, _ARG_END = 47, 48
_ANSWER = b'{"status":"ok","data":[{"id":"another"}]}'


def pretend() -> None:
    """Overwrite its own command line, as programs that retitle themselves do."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    there = ctypes.string_at(start, end - start)
    before, after = (word.encode() for word in PRETEND)
    ctypes.memmove(start, there.replace(before, after), end - start)


def answer(port: int) -> None:
    """Say 200 to whatever is asked, as an engine of another model would."""
    server = socket.create_server(("0.0.0.0", port))
    length = str(len(_ANSWER)).encode()
    while True:
        client, _ = server.accept()
        with client:
            try:
                client.settimeout(5)
                client.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n"
                client.sendall(head + b"content-length: " + length + b"\r\n\r\n" + _ANSWER)
            except OSError:
                continue


def main() -> None:
    """Stay until killed."""
    caught = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    pretend()
    port = os.environ.get(LISTEN)
    if port:
        threading.Thread(target=answer, args=(int(port),), daemon=True).start()
    print(os.getpid(), flush=True)
    while True:
        came = signal.sigwaitinfo(caught)
        name = signal.Signals(came.si_signo).name if came.si_signo < signal.SIGRTMIN else "SIGRT"
        print(name, f"from pid {came.si_pid} of user {came.si_uid}", flush=True)


if __name__ == "__main__":
    main()
