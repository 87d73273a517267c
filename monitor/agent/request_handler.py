"""The agent's handling of requests: it finds them, acts on each once, and answers after the save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from monitor.agent.output import OutputPolicy
from monitor.agent.requests import OperatorRequest, RequestFolder
from monitor.base.errors import RequestError
from monitor.base.results import Outcome
from monitor.config.messages import nearest
from monitor.engine.engine import Engine

log = logging.getLogger("blindsight")

Handler = Callable[[Engine, OperatorRequest], str]
"""Acts on a request, in the engine's thread between two chunks, and says in one sentence what it did.

What it changes of the engine is saved in one transaction with the fact that it did, so that it is done
once whatever is killed when. What it does elsewhere (a file, say) may be done twice, so it must bear that.
It raises `RequestError`, before it has changed anything, to refuse.
"""

_LOOK_SECONDS = 1.0
_MOST_AT_ONCE = 50


class RequestHandler:
    """Takes requests from a folder; used by the engine's thread alone.

    A request goes through four steps, in this order: acted on; saved with the next checkpoint, its id and
    its answer along; answered in a file; removed. A process killed after any of them goes on with the next
    when it is started again.

    Parameters
    ----------
    folder : RequestFolder
    handlers : mapping of str to Handler
        By kind.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        folder: RequestFolder,
        handlers: Mapping[str, Handler],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._handlers = handlers
        self._clock = clock
        self._next_look = -float("inf")
        self._unsaved: set[str] = set()
        self._trouble = ""

    def step(self, engine: Engine, delivery: OutputPolicy) -> None:
        """Look for requests where a second has passed, and take those that are there."""
        if self._unsaved or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _LOOK_SECONDS
        try:
            waiting = self._folder.waiting()[:_MOST_AT_ONCE]
            self._take(waiting, engine, delivery)
        except OSError as error:
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")
        else:
            self._trouble = ""

    def _take(self, waiting: list[str], engine: Engine, delivery: OutputPolicy) -> None:
        for number in engine.answered.keys() - set(waiting):
            del engine.answered[number]  # its file is gone: it cannot come again
        for number in waiting:
            if number in engine.answered:  # saved, but the agent was killed before it could answer
                self._close(number, engine.answered[number])
                continue
            try:
                request = self._folder.read(number)
            except RequestError as error:
                log.warning("A request was refused: %s", _sentence(error))
                self._folder.answer(number, Outcome(False, _sentence(error)))
                self._folder.put_aside(number)
                continue
            engine.answered[number] = self._act(engine, request)
            self._unsaved.add(number)
            delivery.after_save(partial(self._saved, number, engine.answered[number]))

    def _act(self, engine: Engine, request: OperatorRequest) -> Outcome:
        try:
            handler = self._handlers.get(request.kind)
            if handler is None:
                raise RequestError(_unknown(request.kind, list(self._handlers)))
            answer = Outcome(True, handler(engine, request))
        except RequestError as error:
            answer = Outcome(False, _sentence(error))
        except Exception as error:  # a request must not end the agent
            log.exception("Request %s (%s) has failed.", request.id, request.kind)
            answer = Outcome(False, f"It failed with {error!r}; the agent's log has the details.")
        if answer.done:
            log.info("Asked for %s: %s", request.kind, answer.text)
        else:
            log.warning("Asked for %s, refused: %s", request.kind, answer.text)
        return answer

    def _saved(self, number: str, answer: Outcome) -> None:
        self._unsaved.discard(number)
        try:
            self._close(number, answer)
        except OSError as error:  # the next look tries again
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")

    def _close(self, number: str, answer: Outcome) -> None:
        self._folder.answer(number, answer)
        self._folder.remove(number)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:  # once, not every second for as long as it lasts
            log.error("%s; requests are not taken.", trouble)
        self._trouble = trouble


def _sentence(error: RequestError) -> str:
    text = str(error)
    return text if text.endswith("?") else f"{text}."


def _unknown(kind: str, kinds: list[str]) -> str:
    meant = nearest(kind, kinds)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(kinds)) or 'none'}."
    return f"kind: {kind!r} is not known to this agent; {hint} Use the command of the agent's own version"
