"""Sends predictions and labels to a Blindsight agent, and never holds up the service that makes them.

    from blindsight_client import Client

    client = Client("http://127.0.0.1:9108", model="erm")
    client.log("req-81", [0.1, 0.9])
    client.label("req-81", "toxic")

It needs the standard library alone.
"""

from blindsight_client.asgi import Exchange, Middleware
from blindsight_client.client import Client, Counts
from blindsight_client.observe import observed

__all__ = ["Client", "Counts", "Exchange", "Middleware", "observed"]
