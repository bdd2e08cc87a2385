"""The sessions behind one HTTP request, as one stream of outputs."""

import asyncio
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from core.errors import BatonError, PeerLost
from gateway.choice_stream import Delta
from gateway.dispatcher import Dispatcher
from gateway.generation import Generation
from gateway.request_record import RequestRecord
from gateway.request_session import RequestSession
from gateway.session_actions import Cancelled, Failed, Finished, Output, Usage


class Answer:
    """Opens the sessions on entry and abandons on exit whatever hasn't ended: however the handler
    is left (client gone, error, cancelled), its requests end everywhere.

    What a slow reader hasn't taken yet waits here; max_tokens bounds it.
    """

    def __init__(self, dispatcher: Dispatcher, generations: Sequence[Generation]) -> None:
        self._dispatcher = dispatcher
        self._generations = generations
        self._choices = generations[0].sampling.choices
        self._sessions: list[RequestSession] = []
        self._outputs: list[Delta] = []
        self._news = asyncio.Event()
        self._unfinished = len(generations)
        self._usages: list[Usage] = []
        self._error: BatonError | None = None
        self.started = False
        """The first token is here."""

    async def __aenter__(self) -> Self:
        try:
            for index, generation in enumerate(self._generations):
                sink = partial(self._take, index)
                self._sessions.append(self._dispatcher.open(generation, sink))
        except BatonError:
            self._abandon()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._abandon()

    @property
    def record(self) -> RequestRecord:
        """Of the first session: headers can tell of one only."""
        return self._sessions[0].record

    @property
    def ended(self) -> bool:
        """Nothing comes after what `next` returned last."""
        return self._unfinished == 0 and not self._outputs

    @property
    def usage(self) -> Usage:
        """Of all sessions together, once ended."""
        return Usage(
            sum(usage.prompt_tokens for usage in self._usages),
            sum(usage.completion_tokens for usage in self._usages),
            sum(usage.cached_tokens for usage in self._usages),
        )

    async def next(self) -> list[Delta]:
        """Wait for news; return all there is, `choice` counted over all prompts.

        An empty list says that the answer has started or ended. What came before an error is
        returned before it is raised.

        Raises:
            BatonError: a session failed; the others are abandoned with it.
        """
        await self._news.wait()
        self._news.clear()
        outputs, self._outputs = self._outputs, []
        if self._error is not None:
            if not outputs:
                raise self._error
            self._news.set()
        return outputs

    def _take(self, index: int, output: Output) -> None:
        match output:
            case Delta():
                choice = index * self._choices + output.choice
                self._outputs.append(Delta(choice, output.text, output.tokens, output.finish))
            case Finished(usage):
                self._unfinished -= 1
                self._usages.append(usage)
            case Failed(error):
                self._error = self._error or error
            case Cancelled():
                self._error = self._error or PeerLost("cancelled")
            case _:
                self.started = True
        self._news.set()

    def _abandon(self) -> None:
        for session in self._sessions:
            if not session.ended:
                self._dispatcher.abandon(session.attempt.request)
