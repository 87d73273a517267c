"""The page at `/` and the report of a period: HTML made on the server, complete without scripts."""

from monitor.export.page.document import render_page
from monitor.export.page.overview import MOST_SERIES

__all__ = ["MOST_SERIES", "render_page"]
