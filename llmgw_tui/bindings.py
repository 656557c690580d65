"""Textual's bindings, made from the action table."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from llmgw_tui.action_table import ACTIONS
from llmgw_tui.actions import Scope, key_name


def bindings_for(*scopes: Scope) -> list[BindingType]:
    """One binding per key for the actions of these scopes; the id is the action's."""
    return [
        Binding(
            key, f"app.act('{action.id}')", action.title, show=False, id=action.id,
            key_display=key_name(key),
        )
        for action in ACTIONS
        for key in action.keys
        if action.binds and any(scope in action.scopes for scope in scopes)
    ]  # fmt: skip
