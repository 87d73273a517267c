"""Posts of predictions and labels as a source: ``POST /v1/predictions``, ``POST /v1/labels``.

`source` joins the parts; the server is that of `monitor.export.http`, `handler` says what a post is
answered; `body` unpacks it, `intake` judges its rows, `access` knows foreign pages and quotas; tokens and
certificates are those of `monitor.export.http`, `gate` and `tls`; `spool`, `spool_reader`, `segment` and
`mark` keep what was acknowledged on a disk until it is used.
"""

from connectors.http.source import HttpSource

__all__ = ["HttpSource"]
