"""fetch_file.py URLFILE TOKENFILE FILE: appends what is missing of a file; exits as curl does.

For nodes that have neither curl nor wget; any Python 3 will do.
"""

import http.client
import os
import sys
import urllib.error
import urllib.request
from typing import IO

STATUSES = {"": 0, "connect": 7, "cut": 18, "error": 22, "write": 23, "range": 33}


class _Stay(urllib.request.HTTPRedirectHandler):
    """The key is for the mirror alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        """Do not follow."""


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _fetch(url: str, token: str, path: str) -> str:
    have = os.path.getsize(path) if os.path.exists(path) else 0
    request = urllib.request.Request(url)  # noqa: S310 - of our own mirror
    if have:
        request.add_header("Range", "bytes=" + str(have) + "-")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())
    with opener.open(request, timeout=30) as answer:
        if have and answer.getcode() != 206:
            return "range"
        with open(path, "ab", buffering=0) as file:
            return _append(answer, file)


def _append(answer: IO[bytes], file: IO[bytes]) -> str:
    while True:
        block = answer.read(1 << 18)
        if not block:
            return ""
        while block:
            try:
                block = block[file.write(block) :]
            except OSError as error:
                print(error, file=sys.stderr)
                return "write"


def main() -> None:
    """Fetch, and say by the exit status how it went."""
    url_file, token_file, path = sys.argv[1:]
    try:
        trouble = _fetch(_read(url_file), _read(token_file), path)
    except urllib.error.HTTPError as error:
        print(error.code)
        trouble = "error"
    except urllib.error.URLError as error:
        print(error.reason, file=sys.stderr)
        trouble = "connect"
    except (OSError, http.client.HTTPException) as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        trouble = "cut"
    sys.exit(STATUSES[trouble])


if __name__ == "__main__":
    main()
