"""What a decode worker told the gateways last of attempts it has given up.

A connection that breaks takes with it what was under way, and nobody else would tell the gateway:
so the word is repeated over the next connection, as long as it may still be waited for.
"""

from collections import OrderedDict

from core.ids import Attempt
from kv_transfer.node_actions import SendTo
from wire.messages import AttemptFailed

REPEATED_FOR_S = 15.0
REMEMBERED = 1_024


class LastWords:
    """The latest AttemptFailed messages, each with where it went and when."""

    def __init__(self) -> None:
        self._said: OrderedDict[Attempt, tuple[SendTo, float]] = OrderedDict()

    def say(self, address: str, failed: AttemptFailed, now_s: float) -> SendTo:
        """The message to send, remembered."""
        word = SendTo(address, failed)
        self._said[failed.attempt] = (word, now_s)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return word

    def again(self, address: str, now_s: float) -> list[SendTo]:
        """What was said to `address` lately, after the connection to it has broken."""
        while self._said:
            attempt, (_, said_s) = next(iter(self._said.items()))
            if now_s - said_s < REPEATED_FOR_S:
                break
            del self._said[attempt]
        return [word for word, _ in self._said.values() if word.address == address]
