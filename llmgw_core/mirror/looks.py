"""How versions look to people and scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from llmgw_core.api.views import MirrorFileView, MirrorVersionView, MirrorView
from llmgw_core.mirror.versions import FileState, MirrorVersion


def version_view(version: MirrorVersion, *, pulling: bool = False) -> MirrorVersionView:
    """A version's row; ``pulling`` says that something works on it now."""
    rates = [file.rate for file in version.files if file.rate is not None]
    wrong = version.trouble or next((f"{f.file}: {f.error}" for f in version.files if f.error), "")
    return MirrorVersionView(
        model=version.model,
        version=version.version,
        files=tuple(
            MirrorFileView(
                f.file, f.bytes_done, f.bytes_total, f.state.value, f.sha256, f.rate, f.error
            )
            for f in version.files
        ),
        source=version.source,
        revision=version.revision,
        state="pulling" if pulling else _state(version),
        bytes_done=version.bytes_done,
        bytes_total=version.bytes_total,
        rate=sum(rates) if rates and pulling else None,
        error=wrong,
        created=version.created,
    )


def _state(version: MirrorVersion) -> str:
    states = {file.state for file in version.files}
    if version.trouble or FileState.FAILED in states:
        return "failed"
    if FileState.DAMAGED in states:
        return "damaged"
    return "done" if version.complete else "incomplete"


def with_users(
    view: MirrorView, used: Mapping[str, tuple[str, ...]], held: Mapping[str, tuple[str, ...]]
) -> MirrorView:
    """The view with the models that use each version, and the nodes that hold it whole."""
    versions = tuple(
        msgspec.structs.replace(
            v,
            used_by=used.get(f"{v.model}/{v.version}", ()),
            nodes=held.get(f"{v.model}/{v.version}", ()),
        )
        for v in view.versions
    )
    return msgspec.structs.replace(view, versions=versions)
