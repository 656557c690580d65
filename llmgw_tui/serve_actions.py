"""The part of the action table that is about serving models."""

from __future__ import annotations

from llmgw_tui.actions import Action, Option, Scope

SERVING: tuple[Action, ...] = (
    Action(
        id="serve", title="serve", keys=("n",), scopes=(Scope.MODELS,), words=("serve",),
        options=(Option("", "source"),), dangerous=True, shown=True,
        help="Serve weights that are not in the catalog yet; what is known of them is filled in.",
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
