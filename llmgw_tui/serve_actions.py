"""The part of the action table that is about serving models."""

from __future__ import annotations

from llmgw_tui.actions import Action, Kind, Option, Scope

SERVING: tuple[Action, ...] = (
    Action(
        id="serve", title="serve", keys=("n",), scopes=(Scope.MODELS,), words=("serve",),
        options=(Option("", "source"),), dangerous=True, shown=True,
        help="Serve weights that are not in the catalog yet; what is known of them is filled in.",
    ),
    Action(
        id="edit", title="edit", keys=("e",), scopes=(Scope.MODELS,), target=Kind.MODEL,
        dangerous=True, shown=True,
        help="Change the entry of a model that was added at run time, in the same dialog.",
    ),
    Action(
        id="serve-go", title="serve it", keys=("ctrl+s",), scopes=(Scope.SERVE,), dangerous=True,
        help="Do what the dialog shows, from any of its fields.",
    ),
    Action(
        id="serve-toml", title="as TOML", keys=("ctrl+t",), scopes=(Scope.SERVE,),
        help="Show the entry as it would stand in the configuration.",
    ),
)  # fmt: skip
