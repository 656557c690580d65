"""The part of the action table that is about the mirror."""

from __future__ import annotations

from llmgw_tui.actions import Action, Kind, Option, Scope, Values

_HERE = (Scope.MIRROR,)

MIRROR: tuple[Action, ...] = (
    Action(
        id="mirror-pull", title="pull", keys=("P",), scopes=_HERE, command="mirror.pull",
        words=("mirror pull", "pull"), dangerous=True, shown=True,
        options=(Option("", "source"), Option("--as", "name", Values.VERSION, bare=True)),
        help="Fetch weights: hf:ORG/REPO[@REV][:FILE or PATTERN], an http(s) address, or a path "
        "on the controller's machine.",
    ),
    Action(
        id="mirror-serve", title="serve", keys=("s",), scopes=_HERE, target=Kind.VERSION,
        words=("mirror serve",), dangerous=True, shown=True,
        help="Make a model of the catalog out of the version.",
    ),
    Action(
        id="mirror-resume", title="resume", keys=("r",), scopes=_HERE, target=Kind.VERSION,
        command="mirror.pull", words=("mirror resume",), dangerous=True, bulk=True, shown=True,
        help="Go on with a pull that ended early; damaged pieces are fetched anew.",
    ),
    Action(
        id="mirror-verify", title="verify", keys=("v",), scopes=_HERE, target=Kind.VERSION,
        command="mirror.verify", words=("mirror verify", "verify"), dangerous=True, bulk=True,
        shown=True, help="Read every byte again and compare its SHA-256.",
    ),
    Action(
        id="mirror-cancel", title="cancel pull", keys=("X",), scopes=_HERE, target=Kind.VERSION,
        command="mirror.cancel", words=("mirror cancel",), dangerous=True, bulk=True, shown=True,
        help="End a pull; what has come is kept, and r goes on with it.",
    ),
    Action(
        id="mirror-remove", title="remove version", keys=("ctrl+d",), scopes=_HERE,
        target=Kind.VERSION, command="mirror.rm", words=("mirror rm", "mirror remove"),
        dangerous=True, bulk=True, shown=True,
        confirm="What is removed leaves the mirror's disk; copies on nodes stay. A version that a "
        "model uses is refused.",
        help="Take a version out of the mirror; refused while a model uses it.",
    ),
    Action(
        id="mirror-clean", title="clean mirror", keys=("C",), scopes=_HERE, command="mirror.clean",
        words=("mirror clean",), dangerous=True, shown=True,
        help="Find what no version needs, such as half files, and delete it after a question.",
    ),
)  # fmt: skip
