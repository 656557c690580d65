"""``llmgw run mirror``: the store of weights."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_core.cli.output import emit_json, emit_line, emit_table
from llmgw_core.cli.place import Place, actor
from llmgw_core.cli.reads import Json
from llmgw_core.errors import InvalidInput, LlmgwError, NoController
from llmgw_core.plain_text import plain

if TYPE_CHECKING:
    from pathlib import Path

    from llmgw_core.api.views import MirrorVersionView
    from llmgw_core.mirror.store import Store

Key = Annotated[str, typer.Argument(metavar="MODEL/VERSION", help="A version in the mirror.")]
POLL_S = 0.3


def register(run: typer.Typer) -> None:
    """Add the group to ``llmgw run``."""
    mirror = typer.Typer(help="The store of weights.", no_args_is_help=True, rich_markup_mode=None)
    mirror.command("list")(mirror_list)
    mirror.command()(pull)
    mirror.command()(cancel)
    mirror.command("rm")(remove)
    mirror.command()(verify)
    mirror.command()(clean)
    run.add_typer(mirror, name="mirror")


def root_of(place: Place) -> Path:
    """The store's folder, as the configuration says."""
    from pathlib import Path

    from llmgw_core.config_file import load_config

    said = load_config(place.config_file).mirror.path
    return Path(said).expanduser() if said else place.state / "mirror"


def store_of(place: Place) -> Store:
    """The store, for when no controller runs."""
    from llmgw_core.mirror.store import Store

    return Store(root_of(place))


def version_views(place: Place) -> tuple[MirrorVersionView, ...]:
    """What the mirror holds, from the controller or, without one, from the disk."""
    try:
        return place.client().snapshot().mirror.versions
    except NoController:
        from llmgw_core.mirror.looks import version_view

        return tuple(version_view(version) for version in store_of(place).versions())


def mirror_list(context: typer.Context, as_json: Json = False) -> None:
    """Every version with its files."""
    from llmgw_core.cli.views import to_json

    found = version_views(context.obj)
    if as_json:
        emit_json({"versions": [to_json(version) for version in found]})
        return
    rows = [
        [f"{v.model}/{v.version}", v.state, _share(v), _size(v.bytes_total), str(len(v.files)),
         "–" if v.rate is None else f"{_size(int(v.rate))}/s",
         ", ".join(v.used_by) or "–", ", ".join(v.nodes) or "–", v.error or v.source]
        for v in found
    ]  # fmt: skip
    heads = ["VERSION", "STATE", "DONE", "SIZE", "FILES", "RATE", "USED BY", "ON", "SOURCE"]
    emit_table(heads, rows, "the mirror is empty; `llmgw run mirror pull hf:ORG/REPO:PATTERN`")


def pull(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="hf:ORG/REPO[@REV][:PATTERN], a URL or a path.")
    ],
    name: Annotated[
        str, typer.Option("--as", metavar="MODEL[/VERSION]", help="Its name in the mirror.")
    ] = "",
    wait: Annotated[bool, typer.Option(help="Stay until it is done.")] = True,
    as_json: Json = False,
) -> None:
    """Pull weights into the mirror, resuming what was begun."""
    from pathlib import Path

    place: Place = context.obj
    if "://" not in source and not source.startswith("hf:"):
        source = str(Path(source).expanduser().absolute())
    model, _, version = name.partition("/")
    args = {"source": source, "model": model, "version": version}
    try:
        view = _pull_there(place, args, wait=wait, quiet=as_json)
    except NoController:
        view = _pull_here(place, args, quiet=as_json)
    if as_json:
        emit_json(view)
    elif view["state"] == "done":
        emit_line(f"{view['model']}/{view['version']} is in the mirror")
    else:
        emit_line(f"{view['model']}/{view['version']} is being pulled")


def _pull_there(place: Place, args: dict[str, Any], *, wait: bool, quiet: bool) -> dict[str, Any]:
    """Have the controller pull, and show how it goes until it is done."""
    import time

    from llmgw_core.cli.views import to_json

    view: dict[str, Any] = place.client().command("mirror.pull", args, actor()).data
    if not wait:
        return view
    named = (view["model"], view["version"])
    with _Bars(quiet) as bars:
        while True:
            found = place.client().snapshot().mirror.versions
            now = next((v for v in found if (v.model, v.version) == named), None)
            if now is not None:
                bars.show(now)
                if now.state != "pulling":
                    break
            time.sleep(POLL_S)
    if now.state != "done":
        raise LlmgwError(
            f"the pull of {now.model}/{now.version} ended: {now.error or now.state}",
            hint="the same command goes on where it ended",
        )
    return to_json(now)


def _pull_here(place: Place, args: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Pull in this process, since no controller runs."""
    import asyncio
    import os

    from llmgw_core.cli.views import to_json
    from llmgw_core.config_file import load_config
    from llmgw_core.mirror.looks import version_view
    from llmgw_core.mirror.pull import PullRequest
    from llmgw_core.mirror.pull import pull as fetch

    endpoint = load_config(place.config_file).mirror.hub_endpoint or os.environ.get("HF_ENDPOINT")
    request = PullRequest(args["source"], args["model"], args["version"], endpoint=endpoint)
    with _Bars(quiet) as bars:
        version = asyncio.run(
            fetch(store_of(place), request, lambda v: bars.show(version_view(v, pulling=True)))
        )
    return to_json(version_view(version))


class _Bars:
    """Progress on stderr: a bar for each file in a terminal, else nothing."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or not sys.stderr.isatty()
        self._tasks: dict[str, Any] = {}
        self._progress: Any = None

    def __enter__(self) -> _Bars:
        if not self._quiet:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
                TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True),
            )  # fmt: skip
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, view: MirrorVersionView) -> None:
        """Draw a version as it is now."""
        if self._progress is None:
            return
        for file in view.files:
            if file.file not in self._tasks:
                self._tasks[file.file] = self._progress.add_task(plain(file.file), total=None)
            self._progress.update(
                self._tasks[file.file],
                description=plain(
                    f"{file.file} {'' if file.state == 'done' else file.state}".rstrip()
                ),
                completed=file.bytes_done,
                total=file.bytes_total,
            )


def cancel(context: typer.Context, key: Key, as_json: Json = False) -> None:
    """End a running pull; what has come is kept."""
    _ask(context.obj, "mirror.cancel", key, as_json)


def remove(context: typer.Context, key: Key, as_json: Json = False) -> None:
    """Remove a version that no model uses."""
    place: Place = context.obj
    try:
        _ask(place, "mirror.rm", key, as_json)
    except NoController:
        from llmgw_core.mirror.names import read_mirror

        named = read_mirror(key)
        store = store_of(place)
        used = _users(place, store, named.model, named.version)
        freed = store.remove(named.model, named.version, used)
        _told(
            f"{named.key} is removed, {_size(freed)} are free again",
            {"model": named.model, "version": named.version, "freed_bytes": freed},
            as_json,
        )


def verify(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="[MODEL/VERSION]", help="All without it.")] = "",
    as_json: Json = False,
) -> None:
    """Read versions whole and compare them with their checksums."""
    place: Place = context.obj
    model, _, version = key.partition("/")
    try:
        result = place.client().command(
            "mirror.verify", {"model": model, "version": version}, actor()
        )
        text, data = result.text, result.data
    except NoController:
        text, data = _verify_here(place, key)
    _told(text, data, as_json)
    raise typer.Exit(0 if data["ok"] else 1)


def _verify_here(place: Place, key: str) -> tuple[str, dict[str, Any]]:
    from llmgw_core.mirror.names import read_mirror

    store = store_of(place)
    names = [key] if key else [v.name for v in store.versions() if v.complete]
    found = [f for n in map(read_mirror, names) for f in store.verify(n.model, n.version)]
    text = "; ".join(f"{f.model}/{f.version}/{f.file}: {f.problem}" for f in found)
    data = {
        "ok": not found,
        "findings": [
            {"model": f.model, "version": f.version, "file": f.file, "problem": f.problem}
            for f in found
        ],
    }
    return text or f"{len(names)} versions were read: all as they were stored", data


def clean(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove half files of ended pulls and what nobody lists."""
    place: Place = context.obj
    try:
        result = place.client().command("mirror.clean", {"dry_run": dry_run}, actor())
        data: dict[str, Any] = result.data
    except NoController:
        from llmgw_core.mirror.tidy import clean as tidy

        gone = tidy(store_of(place), dry_run=dry_run)
        waste = [{"path": w.path, "bytes": w.bytes, "why": w.why} for w in gone]
        data = {"dry_run": dry_run, "bytes": sum(w.bytes for w in gone), "waste": waste}
    if as_json:
        emit_json(data)
        return
    rows = [[w["path"], _size(w["bytes"]), w["why"]] for w in data["waste"]]
    emit_table(["PATH", "SIZE", "WHY"], rows, "there is nothing to clean")
    if rows:
        emit_line(f"{_size(data['bytes'])} {'would be' if dry_run else 'are'} free again")


def _ask(place: Place, command: str, key: str, as_json: bool) -> None:
    model, slash, version = key.partition("/")
    if not slash:
        raise InvalidInput(f"{key!r} names no version; write MODEL/VERSION")
    result = place.client().command(command, {"model": model, "version": version}, actor())
    _told(result.text, result.data, as_json)


def _users(place: Place, store: Store, model: str, version: str) -> list[str]:
    """Models of the catalog as it is written whose source is this version."""
    from llmgw_core.catalog.overlay import DIRECTORY, Overlay, load_catalog
    from llmgw_core.catalog.sources import MirrorSource, read_source
    from llmgw_core.config_file import load_config
    from llmgw_core.mirror.manifest import ManifestDamaged
    from llmgw_core.mirror.names import shown

    loaded = load_catalog(load_config(place.config_file), Overlay(place.state / DIRECTORY))
    try:
        stored = store.version(model, version)
    except ManifestDamaged:
        stored = None
    found = []
    for user in loaded.catalog:
        source = read_source(user.source)
        named = isinstance(source, MirrorSource) and source.key == f"{model}/{version}"
        if named or (stored and stored.of_source(user.source, shown(user.source))):
            found.append(user.name)
    return found


def _told(text: str, data: Any, as_json: bool) -> None:
    if as_json:
        emit_json(data)
    else:
        emit_line(text)


def _share(view: MirrorVersionView) -> str:
    return f"{100 * view.bytes_done / view.bytes_total:.0f} %" if view.bytes_total else "–"


def _size(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
