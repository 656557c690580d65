"""Accepting a host key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Button

from llmgw_core.api.views import NodeView
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.text import clean

UNKNOWN_KEY = (
    "This key has not been seen before. Compare it with what the machine itself says, for "
    "example: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
)
CHANGED_KEY = (
    "The key is another than before. The machine may have been installed anew, or something "
    "else answers at its address and would read everything you send. Find out which it is first."
)


class TrustDialog(Dialog[str]):
    """Shows the fingerprint (both, where the key changed); gives the accepted one."""

    AUTO_FOCUS: ClassVar[str | None] = "#cancel"

    def __init__(self, node: NodeView) -> None:
        super().__init__()
        self._node = node
        self.heading = f"Trust the host key of {clean(node.name)}?"

    def body(self) -> Iterable[Widget]:
        """Both keys, as far as there are two."""
        node = self._node
        changed = node.old_fingerprint is not None
        yield plain(f"  host  {clean(node.host)}", classes="says")
        if changed:
            yield plain(f"  was   {clean(node.old_fingerprint or '')}", classes="says")
        yield plain(f"  key   {clean(node.fingerprint or 'not known yet')}", classes="names")
        yield plain(CHANGED_KEY if changed else UNKNOWN_KEY, classes="warns" if changed else "says")

    def buttons(self) -> Iterable[Widget]:
        """Cancel has the focus."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Trust", id="go", variant="warning", compact=True,
                     disabled=self._node.fingerprint is None)  # fmt: skip

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Accept what was shown, not what may stand there by now."""
        if event.button.id == "go" and self._node.fingerprint is not None:
            self.dismiss(self._node.fingerprint)
