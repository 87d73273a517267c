"""The sections of an `http` source: what does not go together is refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.base.errors import ConfigError
from monitor.config.file import config_from, load_config
from monitor.config.reload import classify
from monitor.config.root import Config, HttpSourceConfig

HTTP = {"kind": "http", "listen": "127.0.0.1:9108", "spool": {"path": "spool"}}
TOKEN = "0123456789abcdef"


def data(*sources: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"tasks": {"spam": {}, "ham": {}}, "sources": [HTTP | source for source in sources], **rest}


def refusal(*sources: dict[str, Any], **rest: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from(data(*sources, **rest))
    return str(caught.value)


def test_the_defaults() -> None:
    (source,) = config_from(data({})).sources
    assert isinstance(source, HttpSourceConfig)
    assert (source.label, source.spool.max_bytes, source.max_body_bytes) == ("http", 1_000_000_000, 4_194_304)
    assert (source.max_requests, source.read_seconds, source.rows_per_second) == (32, 10.0, None)
    assert (source.tokens, source.tls) == ((), None)


def test_without_a_spool_it_is_refused_and_told_why() -> None:
    assert (
        "sources[0].spool: missing: a record is acknowledged only once it rests on a disk; "
        "give the folder for it, spool: {path: ./spool}, or a store.postgres, which keeps it too"
        in refusal({"spool": {"max_bytes": 20_000_000}})
    )
    config = config_from(data({"spool": {}}, store={"postgres": "host=db"}))
    assert isinstance(config.sources[0], HttpSourceConfig)
    assert config.sources[0].spool.path is None


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            {"spool": {"path": "s", "max_bytes": 2_000_000}},
            "sources[0].spool.max_bytes: expected room for 4 posts of max_body_bytes, 16777216, got 2000000: "
            "raise it, or lower max_body_bytes",
        ),
        ({"listen": "9108"}, "sources[0].listen: expected an address and a port from 0 to 65535"),
        (
            {"tokens": [{}]},
            "sources[0].tokens[0]: expected token or token_file, got neither: give one of them",
        ),
        (
            {"tokens": [{"token": TOKEN, "token_file": "t"}]},
            "sources[0].tokens[0]: expected token or token_file, got both: give one of them",
        ),
        (
            {"tokens": [{"token": "short"}]},
            "sources[0].tokens[0].token: expected at least 16 characters, got 5: take the output of `openssl",
        ),
        (
            {"tokens": [{"token": TOKEN + " x"}]},
            "sources[0].tokens[0].token: expected letters, digits and the signs -._~+/= only, got others",
        ),
        (
            {"tokens": [{"token": TOKEN, "tasks": ["spam", "spam"]}]},
            "sources[0].tokens[0].tasks: expected each name once, got 'spam' 2 times",
        ),
        (
            {"tokens": [{"token": TOKEN, "tasks": ["spam", "eggs"]}]},
            "sources[0].tokens[0].tasks: expected tasks among spam, ham, got 'eggs'",
        ),
        (
            {"allowed_hosts": ["intake.example:9108"]},
            "sources[0].allowed_hosts: expected names of hosts without scheme and port, such as "
            "intake.example or [2001:db8::1], got 'intake.example:9108'",
        ),
        (
            {"allowed_hosts": ["a.example", "a.example"]},
            "sources[0].allowed_hosts: expected each name once, got 'a.example' 2 times",
        ),
        ({"tls": {"cert": "c"}}, "sources[0].tls.key: missing; expected text that is not empty"),
    ],
)
def test_what_does_not_go_together_is_told(source: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(source)


@pytest.mark.parametrize("listen", ["0.0.0.0:9108", "[::]:9108", "192.0.2.1:9108", "example.org:9108"])
def test_beyond_this_machine_nobody_may_write_without_a_token_or_a_certificate(listen: str) -> None:
    sentence = "sources[0].listen: expected an address of this machine only, such as 127.0.0.1, where anyone"
    assert sentence in refusal({"listen": listen})
    tls = {"cert": "c", "key": "k"}
    assert sentence in refusal({"listen": listen, "tls": tls})
    for more in ({"tokens": [{"token": TOKEN}]}, {"tls": tls | {"client_ca": "a"}}):
        assert config_from(data({"listen": listen, **more})).sources[0].listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:9108", "127.1.2.3:1", "[::1]:9108", "localhost:9108"])
def test_on_this_machine_everyone_may(listen: str) -> None:
    assert config_from(data({"listen": listen})).sources[0].listen == listen


def test_addresses_and_folders_are_not_shared() -> None:
    second = {"name": "second", "spool": {"path": "other"}}
    assert (
        "sources[1].listen: expected another address than sources[0].listen, "
        "got '127.0.0.1:9108' for both: take another port" in refusal({}, second)
    )
    assert "another address than export.listen" in refusal({}, export={"listen": "127.0.0.1:9108"})
    free = {"listen": "127.0.0.1:0"}
    assert len(config_from(data(free, free | second)).sources) == 2
    third = {"name": "second", "listen": "127.0.0.1:9110"}
    assert (
        "sources[1].spool.path: expected another folder than sources[0].spool.path, got 'spool' for both"
        in (refusal({}, third))
    )


def test_relative_paths_are_taken_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "tasks: {spam: {}}\nsources:\n  - {kind: http, listen: '127.0.0.1:0', spool: {path: s}, "
        f"tokens: [{{token_file: t}}, {{token: {TOKEN}}}], tls: {{cert: c, key: /k}}}}\n"
    )
    (source,) = load_config(file).sources
    assert isinstance(source, HttpSourceConfig)
    assert source.spool is not None
    assert source.tls is not None
    assert source.spool.path == str(tmp_path / "s")
    assert [token.token_file for token in source.tokens] == [str(tmp_path / "t"), None]
    assert source.tokens[1].token == TOKEN
    assert (source.tls.cert, source.tls.key, source.tls.client_ca) == (str(tmp_path / "c"), "/k", None)


def test_a_printed_configuration_shows_no_token() -> None:
    assert TOKEN not in repr(config_from(data({"tokens": [{"token": TOKEN}]})))


def test_a_change_asks_for_a_restart() -> None:
    old, new = config_from(data({})), config_from(data({"max_requests": 5}))
    assert isinstance(old, Config)
    assert classify(old, new).restart == ("sources",)
