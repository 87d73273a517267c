"""The `http` source, which receives posts of predictions and labels.

`source` assembles the parts:

* `monitor.export.http` has the server, the tokens (`gate`) and the certificates (`tls`).
* `handler` answers each post, in the form of `messages`. It uses `access` for quotas and foreign pages,
  `body` for decompression, and `intake` for the validation of rows.
* `spool` stores acknowledged rows on a disk until they are used, `spool_reader` reads them back, `segment`
  defines the format of their files, and `erase` overwrites single rows.
"""

from connectors.http.source import HttpSource

__all__ = ["HttpSource"]
