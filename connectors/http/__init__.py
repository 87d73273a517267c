"""Posts of predictions and labels as a source: ``POST /v1/predictions``, ``POST /v1/labels``.

`source` joins the parts; the server is that of `monitor.export.http`, `handler` says what a post is
answered; `body` unpacks it, `intake` judges its rows, `access` knows tokens and quotas, `tls` the
certificates, `reloaded_file` reads files again when they change; `spool`, `spool_reader`, `segment` and
`mark` keep what was acknowledged on a disk until it is used.
"""

from connectors.http.source import HttpSource

__all__ = ["HttpSource"]
