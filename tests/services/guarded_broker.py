"""A real Kafka broker that lets in only whom it knows: mutual TLS, SASL over TLS, SASL alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.services.authority import Authority
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import free_ports

Guard = Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
GUARDS: tuple[Guard, ...] = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
USER, PASSWORD = "agent", "a-pass.word"
_LOGIN = "org.apache.kafka.common.security"


class GuardedBroker(KafkaBroker):
    """A `KafkaBroker` with three guarded listeners; its own address stays open for preparations of tests.

    Parameters
    ----------
    authority : Authority
        Signs the broker's certificate, and those of the clients that the listener `SSL` lets in.
    """

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.authority = authority
        self._ports = dict(zip(GUARDS, free_ports(len(GUARDS)), strict=True))

    def guarded(self, guard: Guard) -> str:
        """Return ``host:port`` of a listener, named by its protocol."""
        return f"127.0.0.1:{self._ports[guard]}"

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        extra = "".join(f",G_{guard}://{self.guarded(guard)}" for guard in GUARDS)
        settings["listeners"] += extra
        settings["advertised.listeners"] += extra
        settings["listener.security.protocol.map"] += "".join(f",G_{guard}:{guard}" for guard in GUARDS)
        for guard in GUARDS:
            of = f"listener.name.g_{guard.lower()}"
            if guard != "SASL_PLAINTEXT":
                settings |= {f"{of}.{key}": value for key, value in self._certificates().items()}
            if guard != "SSL":
                settings |= {f"{of}.{key}": value for key, value in _logins().items()}
        settings["listener.name.g_ssl.ssl.client.auth"] = "required"
        return settings

    def _certificates(self) -> dict[str, str]:
        cert, key = self.authority.sign("broker")
        both = cert.with_suffix(".chain")
        both.write_text(key.read_text() + cert.read_text())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.cert),
        }

    def _format(self, *more: str) -> None:
        scram = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        super()._format("--add-scram", scram, *more)


def _logins() -> dict[str, str]:
    plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "plain.sasl.jaas.config": plain,
        "scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    }


def client_options(guard: Guard, authority: Authority, password_file: Path) -> dict[str, str]:
    """Return the options of a client that is let in, in kafka-python's words."""
    options = {"security_protocol": guard}
    if guard != "SASL_PLAINTEXT":
        options["ssl_cafile"] = str(authority.cert)
    if guard == "SSL":
        cert, key = authority.sign("client")
        return {**options, "ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    mechanism = "SCRAM-SHA-256" if guard == "SASL_PLAINTEXT" else "PLAIN"
    return {
        **options,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password_file": str(password_file),
    }
