"""The `http` source, which receives posts of predictions and labels.

`source` assembles the parts:

* `monitor.export.http` has the server, the tokens (`gate`) and the certificates (`tls`).
* `handler` answers each post with an `Answer` of `messages`. It uses `access` for quotas and to refuse posts
  from other sites, `body` for decompression, and `intake` for the validation of rows.
* `spool` stores acknowledged rows on a disk until they are used. `spool_reader` reads the rows, `segment`
  defines the format of the spool's files, and `erase` overwrites single rows.
"""

from connectors.http.source import HttpSource

__all__ = ["HttpSource"]
