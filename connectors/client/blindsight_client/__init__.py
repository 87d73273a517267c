"""A client that sends predictions and labels to a Blindsight agent without delaying the service.

    from blindsight_client import Client

    client = Client("http://127.0.0.1:9108", model="erm")
    client.log("req-81", [0.1, 0.9])
    client.label("req-81", "toxic")

The package needs only the standard library.
"""

from blindsight_client.asgi import Exchange, Middleware
from blindsight_client.client import Client, Counts
from blindsight_client.observe import observed

__all__ = ["Client", "Counts", "Exchange", "Middleware", "observed"]
