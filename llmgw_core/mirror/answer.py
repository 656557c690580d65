"""What a server's answers mean to a file that has come this far. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NoReturn

import httpx

from llmgw_core.mirror.halves import Note
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.sums import Sums
from llmgw_core.mirror.wanted import Interrupted, Listener, Wanted, WrongContent

RETRY_AFTER_MOST_S = 120.0
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_RANGE_END = re.compile(r"bytes \*/([0-9]{1,19})")
_NUMBER = re.compile(r"[0-9]{1,19}")
_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}


class Broken(Exception):
    """This attempt ended early; another may go on."""

    def __init__(self, why: str, *, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class Standing:
    """How far one file has come, and what its server has said of it."""

    def __init__(self, wanted: Wanted, hear: Listener, piece_bytes: int) -> None:
        self._wanted = wanted
        self._hear = hear
        self._piece_bytes = piece_bytes
        self.note = Note()
        self.total = wanted.size
        self.sums = Sums(piece_bytes)
        """Its count is how much of the half is good."""

    def headers(self) -> dict[str, str]:
        """What to ask for the rest with."""
        headers = {"Accept-Encoding": "identity", **self._wanted.headers}
        if self.sums.count:
            headers["Range"] = f"bytes={self.sums.count}-"
            if not self._wanted.sha256:
                headers["If-Range"] = self.note.validator
        return headers

    def is_more(self, count: int) -> bool:
        """Whether so many bytes behind the present ones are more than the file has."""
        return self.total is not None and self.sums.count + count > self.total

    def judge(self, response: httpx.Response) -> bool:
        """Whether a body is to be read; the count is set back where it begins anew.

        Raises:
            Broken: to be asked again.
            LlmgwError: not to be asked again.
        """
        status, done = response.status_code, self.sums.count
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            return self._judge_end(response)
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            self._refuse(response)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Interrupted(f"{shown(self._wanted.url)} comes compressed, against what was asked")
        if status == HTTPStatus.PARTIAL_CONTENT:
            self._judge_part(response)
            return True
        total = number_in(response.headers.get("content-length", ""))
        if done:
            changed = self._changed(response, total)
            self._restart(
                "it changed at the source; begun again"
                if changed
                else "the server cannot go on in the middle; begun again"
            )
        self._expect(response, total)
        return True

    def _judge_end(self, response: httpx.Response) -> bool:
        """A range beyond the end: all is there already, or it is another file."""
        found = _RANGE_END.fullmatch(response.headers.get("content-range", ""))
        if found is None and self._wanted.sha256:
            self.total = self.sums.count  # the checksum decides
            return False
        if found is not None and int(found[1]) == self.sums.count:
            self.total = self.sums.count
            return False
        self._restart("it changed at the source; begun again")
        raise Broken("the file became shorter")

    def _judge_part(self, response: httpx.Response) -> None:
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        total = int(found[3]) if found and found[3] != "*" else None
        if found is None or int(found[1]) != self.sums.count:
            self._restart("the server gave another part than was asked for; begun again")
            raise Broken("it gave another part than was asked for")
        if self._changed(response, total):
            self._restart("it changed at the source; begun again")
            raise Broken("it changed at the source")
        self._expect(response, total)

    def _changed(self, response: httpx.Response, total: int | None) -> bool:
        if total is not None and self.total is not None and total != self.total:
            return True
        etag = response.headers.get("etag", "")
        return bool(not self._wanted.sha256 and etag and etag != self.note.etag)

    def _restart(self, why: str) -> None:
        self._hear.noted(why)
        self.sums = Sums(self._piece_bytes)
        self.total = self._wanted.size
        self.note = Note()

    def _expect(self, response: httpx.Response, total: int | None) -> None:
        """Take over the size that the server says, where it is no other than the promised one."""
        if total is None:
            return
        wanted, etag = self._wanted, response.headers.get("etag", "")
        if wanted.size is not None and total != wanted.size:
            changed = wanted.sha256 is None and wanted.mark and etag not in ("", wanted.mark)
            if changed:
                self._hear.noted("it changed at the source; begun again")
                self.total = total
                return
            raise WrongContent(
                f"{shown(self._wanted.url)} has {total} bytes and should have {self._wanted.size}; "
                "it may have changed just now, try again"
            )
        self.total = total

    def _refuse(self, response: httpx.Response) -> NoReturn:
        status = response.status_code
        if response.history and status == HTTPStatus.FORBIDDEN:
            # a signed address that ran out: the next attempt is given a new one
            raise Broken(f"the server that it sends to answers {status}")
        explain = self._wanted.explain
        better = explain(status, response.headers) if explain else None
        if better is not None:
            raise better
        if status in _AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Broken(f"it answers {status}", wait_s=retry_after(response.headers))
        raise Interrupted(f"{shown(self._wanted.url)} cannot be fetched: it answers {status}")


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, within bounds; 0 where it says none in seconds."""
    said = number_in(headers.get("retry-after", ""))
    return 0.0 if said is None else min(float(said), RETRY_AFTER_MOST_S)


def number_in(header: str) -> int | None:
    """The number that a header is; None where it is none, or none that a size can be.

    ``str.isdigit`` is no help: it takes ``²``, which ``int`` does not.
    """
    return int(header) if _NUMBER.fullmatch(header) else None
