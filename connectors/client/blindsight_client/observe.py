"""A decorator that logs the answers of functions, and of methods of Ray Serve and BentoML, without ASGI."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from blindsight_client.client import Client

log = logging.getLogger("blindsight_client")

Call = TypeVar("Call", bound=Callable[..., Any])


def observed(client: Client, records: Callable[..., Iterable[Mapping[str, Any]]]) -> Callable[[Call], Call]:
    """Return a decorator that logs the results of a function, method or coroutine and returns them unchanged.

    Parameters
    ----------
    client : Client
    records : callable
        A function that receives the result and the arguments of the call, and returns a mapping for each
        answer, with the keyword arguments of `Client.log`. If the function raises, its first exception is
        logged.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:9", model="erm", flush_seconds=60.0)
    >>> @observed(client, lambda answer, request: [{"id": request["id"], "scores": answer}])
    ... def predict(request):
    ...     return [0.1, 0.9]
    >>> predict({"id": "req-81"}), client.counts()["predictions"].pending
    ([0.1, 0.9], 1)
    >>> client.close(timeout=0.0)
    """

    def wrap(call: Call) -> Call:
        failed: list[str] = []

        def note(answer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            try:
                for record in records(answer, *arguments, **named):
                    client.log(**record)
            except Exception:
                if not failed:
                    failed.append("")
                    log.exception("No record was made of an answer. This is told once.")

        @functools.wraps(call)
        def plain(*arguments: Any, **named: Any) -> Any:
            answer = call(*arguments, **named)
            note(answer, arguments, named)
            return answer

        @functools.wraps(call)
        async def waiting(*arguments: Any, **named: Any) -> Any:
            answer = await call(*arguments, **named)
            note(answer, arguments, named)
            return answer

        return waiting if inspect.iscoroutinefunction(call) else plain  # type: ignore[return-value]

    return wrap
