"""A row of the list of the mirror's versions, and the line above it. Pure."""

from __future__ import annotations

from llmgw_core.api.views import MirrorVersionView, MirrorView
from llmgw_tui.rows import amounts, words
from llmgw_tui.rows.parts import Col, Look, Part, stated
from llmgw_tui.spark import bar

BAR_WIDTH = 8


def is_fault(version: MirrorVersionView) -> bool:
    """Whether the version needs attention."""
    return words.mark_of(words.VERSION_MARKS, version.state).fault


def standing(mirror: MirrorView, ascii_only: bool) -> list[Part]:
    """How the mirror itself does: state, address, room on its disk."""
    mark = words.mark_of(words.GATEWAY_MARKS, mirror.state)
    parts = [Part("mirror ", "muted"), stated(mark, mirror.state, ascii_only)]
    if mirror.address:
        parts.append(Part(f"  {mirror.address}"))
    if mirror.disk_free_gb is not None:
        parts += [Part(f"  {words.gib(mirror.disk_free_gb)} GiB"), Part(" free", "muted")]
    if mirror.reason:
        parts.append(Part(f"  {mirror.reason}", mark.style if mark.fault else "muted"))
    elif mirror.root:
        parts.append(Part(f"  in {mirror.root}", "muted"))
    return parts


def version_share(version: MirrorVersionView) -> float | None:
    """How far a pull is, 0 to 1."""
    return amounts.share_of(version.bytes_done, version.bytes_total)


def state_words(version: MirrorVersionView) -> str:
    """A version's state, with how far it is."""
    if version.state != "pulling":
        return version.state
    return f"pulling {words.share(version_share(version))}"


def amount(version: MirrorVersionView) -> str:
    """How large it is, or how much of it is there."""
    if version.state == "pulling":
        return amounts.under_way(version.bytes_done, version.bytes_total, version.rate)
    if version.bytes_done == version.bytes_total:
        return amounts.size(version.bytes_total)
    return amounts.done_of(version.bytes_done, version.bytes_total)


def weights_of(model: str, mirror: MirrorView, ascii_only: bool) -> list[tuple[Part, ...]]:
    """Two lines for each version that a model of the catalog needs: its name, how it is."""
    lines: list[tuple[Part, ...]] = []
    for version in mirror.versions:
        if model in version.used_by:
            mark = words.mark_of(words.VERSION_MARKS, version.state)
            lines += [
                (Part(f"{version.model}/{version.version}"),),
                (stated(mark, state_words(version), ascii_only),
                 Part(f"  {amount(version)}", "muted")),
            ]  # fmt: skip
    return lines


def removal_note(version: MirrorVersionView) -> str:
    """What a person should know before it goes."""
    used = f", used by {', '.join(version.used_by)}" if version.used_by else ""
    return f"{amounts.size(version.bytes_done)}{used}"


def sentence(version: MirrorVersionView) -> str:
    """What is wrong with a version; empty where nothing is."""
    if not is_fault(version):
        return ""
    error = version.error
    if len(version.files) == 1:  # its name stands in the row already, or on the card
        error = error.removeprefix(f"{version.files[0].file}: ")
    return error or f"{amounts.done_of(version.bytes_done, version.bytes_total)}, r goes on"


def _name(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    return (Part(version.model, "strong"), Part(f"/{version.version}"))


def _state(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    mark = words.mark_of(words.VERSION_MARKS, version.state)
    return (stated(mark, version.state, look.ascii),)


def _size(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    """Or, in place of all to its right, what is wrong."""
    if wrong := sentence(version):
        has_come = f" ({amount(version)})" if version.error else ""
        return (Part(f" {wrong}{has_come}", "muted", spans=True),)
    return (Part(amounts.size(version.bytes_total)),)


def _progress(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    if version.state != "pulling":
        return (Part(""),)
    if version.bytes_total is None:
        return (Part(f"{amounts.size(version.bytes_done)} so far"),)
    share = version_share(version)
    return (
        Part(bar(share, BAR_WIDTH, ascii=look.ascii), "spark"),
        Part(f"{words.share(share):>6}"),
    )


def _rate(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    text = amounts.rate(version.rate) if version.state == "pulling" else ""
    return (Part(text, "muted" if version.rate is None else ""),)


def left_s(version: MirrorVersionView) -> float | None:
    """Seconds until a pull is done; None where nothing is pulled or it cannot be said."""
    if version.state != "pulling":
        return None
    return amounts.left_s(version.bytes_done, version.bytes_total, version.rate)


def _left(version: MirrorVersionView, look: Look) -> tuple[Part, ...]:
    seconds = left_s(version)
    text = words.span(seconds) if version.state == "pulling" else ""
    return (Part(text, "muted" if seconds is None else ""),)


def _list(names: tuple[str, ...]) -> tuple[Part, ...]:
    return (Part(", ".join(names)),)


VERSION_COLUMNS: tuple[Col[MirrorVersionView], ...] = (
    Col(key="name", title="MODEL/VERSION", width=26, grow=4, cell=_name,
        sort=lambda v: (v.model, v.version)),
    Col(key="state", title="STATE", width=12, cell=_state, sort=lambda v: v.state),
    Col(key="files", title="FILES", width=5, right=True, drop=8, sort=lambda v: len(v.files),
        cell=lambda v, _: (Part(str(len(v.files)), "muted"),)),
    Col(key="used", title="USED BY", width=14, grow=1, drop=7, sort=lambda v: v.used_by,
        cell=lambda v, _: _list(v.used_by)),
    Col(key="size", title="SIZE", width=9, right=True, drop=2, sort=lambda v: v.bytes_total,
        cell=_size),
    Col(key="progress", title="PROGRESS", width=BAR_WIDTH + 6, drop=1, cell=_progress,
        sort=lambda v: v.bytes_done),
    Col(key="rate", title="RATE", width=8, right=True, drop=4, cell=_rate, sort=lambda v: v.rate),
    Col(key="left", title="LEFT", width=6, right=True, drop=3, cell=_left, sort=left_s),
    Col(key="nodes", title="ON NODES", width=10, grow=1, drop=9, sort=lambda v: v.nodes,
        cell=lambda v, _: _list(v.nodes)),
    Col(key="source", title="SOURCE", width=20, grow=4, drop=10, sort=lambda v: v.source,
        cell=lambda v, _: (Part(v.source, "muted"),)),
    Col(key="age", title="AGE", width=7, right=True, drop=11, wide=True,
        sort=lambda v: -(v.created or 0.0),
        cell=lambda v, look: (Part(words.age(v.created or 0.0, look.now), "muted"),)),
    Col(key="revision", title="REVISION", width=12, drop=12, wide=True, sort=lambda v: v.revision,
        cell=lambda v, _: (Part(v.revision[:12] or words.UNKNOWN, "muted"),)),
)  # fmt: skip
