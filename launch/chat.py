"""`baton chat`: a conversation in the terminal, or one line per turn from a pipe."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console

from core.errors import BatonError, SetupError, Unauthorized
from launch.chat_client import ChatClient, Message, Turn

HELP = "/quit ends, /reset starts a new conversation, Ctrl-C stops an answer"
EXIT_FAILED = 1


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Whom to talk to, and how. `temperature` None: as the server chooses."""

    url: str
    api_key: str | None = None
    model: str = "default"
    temperature: float | None = None


def chat(settings: ChatSettings, source: TextIO, out: TextIO, notes: Console) -> int:
    """Read turns from `source` until its end or /quit; answers go to `out`, figures and errors to
    `notes`. Returns 1 if `source` is no terminal and a turn failed, else 0.

    Raises:
        SetupError: nothing answers at the URL, or the key is wrong.
    """
    interactive = source.isatty()
    if interactive:
        notes.print(f"{settings.url}   {HELP}", style="dim", highlight=False, markup=False)
    with asyncio.Runner() as runner:
        client = runner.run(_open(settings))
        conversation = _Conversation(runner, client, out, notes)
        try:
            failed = False
            for line in _turns(source, interactive):
                match line.strip():
                    case "":
                        continue
                    case "/quit" | "/exit":
                        break
                    case "/reset":
                        conversation.messages.clear()
                        notes.print("a new conversation", style="dim")
                    case "/help":
                        notes.print(HELP, style="dim", highlight=False, markup=False)
                    case text:
                        failed |= not conversation.take_turn(text)
                if failed and not interactive:
                    return EXIT_FAILED
            return 0
        finally:
            runner.run(client.__aexit__(None, None, None))


class _Conversation:
    """The messages so far, and how to add a turn to them."""

    def __init__(
        self, runner: asyncio.Runner, client: ChatClient, out: TextIO, notes: Console
    ) -> None:
        self.messages: list[Message] = []
        self._runner, self._client = runner, client
        self._out, self._notes = out, notes

    def take_turn(self, text: str) -> bool:
        """Send `text` and show the answer; False if that failed (then it isn't part of the
        conversation)."""
        turn = Turn()
        self.messages.append({"role": "user", "content": text})
        try:
            self._runner.run(self._answer(turn))
        except KeyboardInterrupt:  # closing the stream cancels the request everywhere
            self._notes.print("\n(stopped)", style="dim")
        except (SetupError, Unauthorized) as error:
            raise SetupError(error.message) from None
        except BatonError as error:
            self._notes.print(f"\n{error.message}", style="red", markup=False, highlight=False)
            self.messages.pop()
            return False
        self.messages.append({"role": "assistant", "content": turn.text})
        self._notes.print(figures(turn), style="dim", highlight=False, markup=False)
        return True

    async def _answer(self, turn: Turn) -> None:
        async with contextlib.aclosing(self._client.stream(self.messages, turn)) as pieces:
            async for piece in pieces:
                self._out.write(printable(piece))
                self._out.flush()
        self._out.write("\n")
        self._out.flush()


def figures(turn: Turn) -> str:
    """`TTFT 85 ms, TPOT 21.0 ms (48 tokens/s), 120 tokens, prefill-0 → decode-0`."""
    parts = []
    if turn.ttft_ms is not None:
        parts.append(f"TTFT {turn.ttft_ms:.0f} ms")
    if turn.tpot_ms:
        parts.append(f"TPOT {turn.tpot_ms:.1f} ms ({1e3 / turn.tpot_ms:.0f} tokens/s)")
    if turn.tokens:
        parts.append(f"{turn.tokens} tokens")
    if turn.decode:
        local = turn.prefill in ("", "local")
        parts.append(f"{turn.decode} alone" if local else f"{turn.prefill} → {turn.decode}")
    if turn.finish == "length":
        parts.append("cut at the length limit")
    return ", ".join(parts)


def printable(text: str) -> str:
    """Without what a terminal would obey: a model may write escape sequences."""
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() or ord(c) > 0x9F))


async def _open(settings: ChatSettings) -> ChatClient:
    return ChatClient(settings.url, settings.api_key, settings.model, settings.temperature)


def _turns(source: TextIO, interactive: bool) -> Iterator[str]:
    if not interactive:
        yield from source
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # editing and history, where Python was built with it
    ask: Callable[[str], str] = input
    while True:
        try:
            yield ask("› ")
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print("\n/quit ends", file=sys.stderr)
