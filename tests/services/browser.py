"""A real Chromium (Debian's package `chromium`) that opens what a test serves, and nothing else."""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.services.process import ServiceUnavailable

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One Chromium. A context manager: outside it is gone.

    Raises
    ------
    ServiceUnavailable
        Chromium, or the package that drives it, is not installed.
    """

    def __init__(self) -> None:
        program = shutil.which("chromium")
        if program is None:
            raise ServiceUnavailable("`chromium` is missing: run .ci/install-services.sh")
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise ServiceUnavailable("playwright is missing: pip install 'blindsight[test]'") from error
        self._manager = sync_playwright()
        self._program = program

    def __enter__(self) -> Browser:
        self._playwright = self._manager.start()
        self._browser = self._playwright.chromium.launch(executable_path=self._program, args=list(_FLAGS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def tab(self, origin: str, **settings: Any) -> Tab:
        """Return a fresh tab that refuses requests to anywhere but the origin (``http://127.0.0.1:9109``).

        Parameters
        ----------
        origin : str
        **settings
            Of Playwright's `new_context`: `color_scheme`, `viewport`, `java_script_enabled`, …
        """
        return Tab(self._browser.new_context(**settings), origin)


class Tab:
    """A tab, what its console complained of, and where it wanted to go. A context manager.

    Attributes
    ----------
    page : playwright.sync_api.Page
    complaints : list of str
        Errors and warnings on the console, and exceptions that no script caught.
    elsewhere : list of str
        Addresses outside of the origin that were asked for, in vain.
    """

    def __init__(self, context: Any, origin: str) -> None:
        self._context, self._origin = context, urlsplit(origin)
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        context.route("**/*", self._let_through)
        self.page = context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def __enter__(self) -> Tab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.close()

    def _let_through(self, route: Any) -> None:
        url = urlsplit(route.request.url)
        if url.scheme == "data" or (url.scheme, url.netloc) == (
            self._origin.scheme,
            self._origin.netloc,
        ):
            route.continue_()
        else:
            self.elsewhere.append(route.request.url)
            route.abort()

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)
