"""Repositories of the model hub, through its own library; blocks.

The token comes from HF_TOKEN or the file that the library's login writes. It goes to the hub alone:
addresses, errors and what is written down never hold it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from llmgw_core.catalog.sources import HubSource
from llmgw_core.errors import LlmgwError, NotFound, Refused
from llmgw_core.mirror.choose import choose
from llmgw_core.mirror.listing import Listing, Remote

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

TIMEOUT_S = 30.0
DEFAULT_ENDPOINT = "https://huggingface.co"


def list_hub(source: HubSource, text: str, endpoint: str | None) -> Listing:
    """The files of a repository that a pull takes.

    Args:
        source: Repository, revision, pattern.
        text: The same as it was written.
        endpoint: The hub; HF_ENDPOINT or the usual one where it is None.

    Raises:
        NotFound: no such repository or revision, or no file that matches.
        Refused: it is gated, or it is not clear which files are meant.
        LlmgwError: the hub cannot be reached.
    """
    from huggingface_hub import get_token, hf_hub_url

    hub = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    token = get_token() or False
    info = _model_info(source, hub, token)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    commit = info.sha or ""
    where = f"hf:{source.repo}" + (f"@{source.revision}" if source.revision else "")
    names = choose(list(siblings), source.pattern, where)
    return Listing(
        source=text.strip(),
        files=tuple(
            _remote(
                siblings[name],
                hf_hub_url(source.repo, name, revision=commit or source.revision, endpoint=hub),
            )
            for name in names
        ),
        revision=commit,
        commit=commit,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        explain=_Explain(source.repo, hub, has_token=bool(token)),
    )


def _remote(sibling: RepoSibling, url: str) -> Remote:
    # small files are kept in git, which has no SHA-256 of them: their blob's name tells changes
    lfs = sibling.lfs
    size = lfs.size if lfs is not None and lfs.size is not None else sibling.size
    return Remote(
        sibling.rfilename,
        url,
        size,
        sha256=lfs.sha256 if lfs is not None else None,
        mark=sibling.blob_id or "",
    )


def _model_info(source: HubSource, hub: str, token: str | bool) -> ModelInfo:
    from huggingface_hub import HfApi
    from huggingface_hub import errors as known

    api = HfApi(endpoint=hub, token=token)
    try:
        return api.model_info(
            source.repo, revision=source.revision or None, files_metadata=True, timeout=TIMEOUT_S
        )
    except known.GatedRepoError:
        raise _gated(source.repo, hub, has_token=bool(token)) from None
    except known.RevisionNotFoundError:
        raise NotFound(f"hf:{source.repo} has no revision {source.revision!r} on {hub}") from None
    except known.RepositoryNotFoundError:
        raise _no_repo(source.repo, hub, has_token=bool(token)) from None
    except known.HFValidationError:
        raise NotFound(f"{source.repo!r} cannot be a repository's name") from None
    except known.OfflineModeIsEnabled:
        raise Refused(
            "the hub is not asked because HF_HUB_OFFLINE is set", hint="unset it to pull"
        ) from None
    except known.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status == HTTPStatus.UNAUTHORIZED:
            raise Refused(f"{hub} does not accept the token", hint="check HF_TOKEN") from None
        raise LlmgwError(f"{hub} answers {status} about hf:{source.repo}; try later") from None
    except Exception as error:  # noqa: BLE001  the library's transport differs between its versions
        raise LlmgwError(
            f"the hub {hub} cannot be reached ({type(error).__name__})",
            hint="check the network, or pull a file of this machine",
        ) from None


def _gated(repo: str, hub: str, *, has_token: bool) -> Refused:
    if has_token:
        return Refused(
            f"hf:{repo} is gated and its owner has not let this token in",
            hint=f"accept its terms at {hub}/{repo} with the token's account",
        )
    return Refused(f"hf:{repo} is gated", hint=f"accept its terms at {hub}/{repo} and set HF_TOKEN")


def _no_repo(repo: str, hub: str, *, has_token: bool) -> NotFound:
    hint = "check its name" if has_token else "check its name; if it is private, set HF_TOKEN"
    return NotFound(f"{hub} has no repository {repo}", hint=hint)


class _Explain:
    """What the hub's answers to a download mean."""

    def __init__(self, repo: str, hub: str, *, has_token: bool) -> None:
        self._repo = repo
        self._hub = hub
        self._has_token = has_token

    def __call__(self, status: int, headers: Mapping[str, str]) -> LlmgwError | None:
        """The error of an answer; None where it is nothing special."""
        gated = headers.get("x-error-code") == "GatedRepo"
        if gated or status == HTTPStatus.FORBIDDEN:
            return _gated(self._repo, self._hub, has_token=self._has_token)
        if status == HTTPStatus.UNAUTHORIZED:
            return _no_repo(self._repo, self._hub, has_token=self._has_token)
        return None
