"""A receiver of Alertmanager's webhooks that prints each alert. A pager or a chat is in its place in earnest.

python receiver.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Receiver(BaseHTTPRequestHandler):
    """A handler that prints the alerts of a notification."""

    def do_POST(self) -> None:
        """Print the status, the name and the annotations of each alert."""
        notification = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in notification["alerts"]:
            labels, annotations = alert["labels"], alert["annotations"]
            print(time.strftime("%H:%M:%S"), alert["status"].upper(), labels["severity"], labels["alertname"])
            for text in annotations.values():
                print(f"    {text}")
        sys.stdout.flush()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        """Print nothing on the request itself."""


if __name__ == "__main__":
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9095").rpartition(":")
    HTTPServer((host, int(port)), Receiver).serve_forever()
