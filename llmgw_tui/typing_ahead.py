"""Keys one after the other, however fast they come.

Textual hands a key to the widget in focus and goes on to the next one; what the first key does
happens later, when it has come up again through the widget's parents. Keys that lie in the
terminal's buffer (typed ahead on a slow link, pasted, or while the machine is busy) would all go to
the widget that was in focus before the first of them: the letters after ``:`` would be verbs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen

KEPT = 1024
"""Keys that wait; more than anyone types ahead."""
ROUNDS = 2
"""Times through the application's queue after the key: it puts there what it asks for, such as
another focus, and that may do so again."""
LOST_AFTER_S = 1.0
"""A key whose end is not heard of, since its widget was taken away, holds up others so long."""


class KeysInOrder:
    """Lets a key through once the one before it has had its effect.

    Args:
        app: the application whose keys they are.
        deliver: hands a key to the widget in focus, as Textual does.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        app: App[int],
        deliver: Callable[[events.Key], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._app = app
        self._deliver = deliver
        self._clock = clock
        self._waiting: deque[events.Key] = deque(maxlen=KEPT)
        self._under_way = 0
        """The number of the key that is under way; 0 for none."""
        self._count = 0
        self._since = 0.0

    @property
    def idle(self) -> bool:
        """Whether every key has had its effect."""
        return not self._under_way and not self._waiting

    async def take(self, key: events.Key) -> None:
        """A key came from the terminal."""
        lost = self._under_way and self._clock() - self._since > LOST_AFTER_S
        if self._under_way and not lost:
            self._waiting.append(key)
            return
        self._waiting.append(key)
        await self._next()

    async def _next(self) -> None:
        if not self._waiting or not self._app.is_running:
            self._under_way = 0
            return
        key = self._waiting.popleft()
        self._count += 1
        number = self._under_way = self._count
        self._since = self._clock()
        screen = self._app.screen
        target = self._app.focused or screen
        await self._deliver(key)
        self._follow(target, number, screen)

    def _follow(self, node: MessagePump | None, number: int, screen: Screen[object]) -> None:
        """Go the way of the key, behind it in each queue, up to the application."""
        if node is None or node is self._app:
            self._app.call_later(self._arrived, number, screen, ROUNDS)
            return

        async def go_on() -> None:
            self._follow(node._parent, number, screen)

        if not node.post_message(events.Callback(callback=go_on)):
            self._app.call_later(self._arrived, number, screen, ROUNDS)

    async def _arrived(self, number: int, screen: Screen[object], rounds: int) -> None:
        if number != self._under_way:
            return
        if rounds:
            self._app.call_later(self._arrived, number, screen, rounds - 1)
            return
        if self._app.is_running and self._app.screen is not screen:
            # another screen came up: its widget in focus is known once it was drawn
            self._app.screen.call_after_refresh(self._settled, number)
            return
        await self._next()

    async def _settled(self, number: int) -> None:
        if number == self._under_way:
            await self._next()
