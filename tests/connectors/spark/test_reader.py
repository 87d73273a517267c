"""The options of Spark's reader of Kafka: logins, certificates, headers; tried at real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from connectors.spark.job import BLOCKS, BlockKind, unpacked
from connectors.spark.ledger import CheckpointLedger
from connectors.spark.messages import MESSAGES, Stream, read_messages
from connectors.spark.reader_options import reader_options
from connectors.spark.replaying import by_unit, spark_hash
from connectors.spark.streaming import Steps
from monitor.base.errors import ConfigError
from monitor.base.records import id_keys
from monitor.cli.run_spark import only_source
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import KafkaSourceConfig
from tests.connectors.kafka.test_events import BINARY, BODY
from tests.connectors.spark.messages import stream_config
from tests.services.authority import OPENSSL, Authority
from tests.services.guarded_broker import GUARDS, PASSWORD, USER, GuardedBroker, client_options
from tests.services.kafka_broker import KafkaBroker
from tests.services.spark_cluster import kafka_jars

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def source(**more: Any) -> KafkaSourceConfig:
    return KafkaSourceConfig(**({"kind": "kafka", "brokers": ("b:1",), "topics": ("p",)} | more))


@pytest.fixture
def session(spark: None) -> Iterator[Any]:
    from connectors.spark.session import started

    with started("local[1]", {"spark.jars": kafka_jars()}, "tests") as session:
        yield session


def loaded(session: Any, settings: KafkaSourceConfig) -> Any:
    """Return all that is in the topics, read once with what a stream is told."""
    return session.read.format("kafka").options(**reader_options(settings)).load()


def test_brokers_let_spark_in_by_certificate_and_by_password(
    session: Any, guarded_broker: GuardedBroker, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    guarded_broker.create_topic("spark-guarded")
    guarded_broker.produce("spark-guarded", [b"1", b"2"])
    for guard in GUARDS:
        options = client_options(guard, guarded_broker.authority, password)
        settings = source(
            brokers=(guarded_broker.guarded(guard),), topics=("spark-guarded",), options=options
        )
        rows = loaded(session, settings).select("value").collect()
        assert sorted(bytes(row.value) for row in rows) == [b"1", b"2"], guard


def test_events_in_binary_mode_come_with_their_headers(
    session: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("spark-events")
    request = BINARY | {"ce_type": "org.kubeflow.serving.inference.request"}
    kafka_broker.produce("spark-events", [BODY], headers=BINARY)
    kafka_broker.produce("spark-events", [b"anything", None], headers=request)
    kafka = {"kind": "kafka", "brokers": [kafka_broker.address], "topics": ["spark-events"]}
    path = stream_config(
        tmp_path,
        kafka_broker.address,
        tasks={"t": {"classes": ["ok", "toxic"], "metrics": ["accuracy"], "reference": {"first_windows": 5}}},
        sources=[kafka | {"mapping": {"format": "kserve"}}],
    )
    config = load_config(str(path))
    stream = Stream(config, ReferenceTrial(config).engine_settings(event_time=True), only_source(config))
    broadcast = session.sparkContext.broadcast(stream)
    messages = loaded(session, stream.source).selectExpr(*MESSAGES).coalesce(1)
    rows = messages.mapInArrow(partial(read_messages, broadcast), BLOCKS).collect()
    (share,) = [unpacked(bytes(row.data)).share for row in rows if row.kind == BlockKind.SHARE]
    (facts,) = [unpacked(bytes(row.data)) for row in rows if row.kind == BlockKind.FACTS]
    assert share.model == "erm ü"
    assert share.records.scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert facts.ignored == 2
    assert facts.models == {("t", "erm ü"): [0, 2]}
    assert not facts.answers_rejected


def test_key_header_and_timestamp_of_a_message_are_mapped(
    session: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("spark-beside")
    kafka_broker.produce(
        "spark-beside", [b'{"p": 0.75}'], headers={"model": "erm"}, key=b"r-1", milliseconds=1782907200500
    )
    kafka = {"kind": "kafka", "brokers": [kafka_broker.address], "topics": ["spark-beside"]}
    mapping = {"id": "$key", "time": "$timestamp", "model": "$headers.model", "scores": "p"}
    path = stream_config(
        tmp_path,
        kafka_broker.address,
        tasks={"t": {"classes": ["ok", "toxic"], "metrics": ["accuracy"], "reference": {"first_windows": 5}}},
        sources=[kafka | {"mapping": mapping}],
    )
    config = load_config(str(path))
    stream = Stream(config, ReferenceTrial(config).engine_settings(event_time=True), only_source(config))
    broadcast = session.sparkContext.broadcast(stream)
    messages = loaded(session, stream.source).selectExpr(*MESSAGES).coalesce(1)
    rows = messages.mapInArrow(partial(read_messages, broadcast), BLOCKS).collect()
    (share,) = [unpacked(bytes(row.data)).share for row in rows if row.kind == BlockKind.SHARE]
    assert share.model == "erm"
    assert share.records.key.tolist() == id_keys(["r-1"]).tolist()
    assert share.records.time.tolist() == [1782907200.5]


def test_each_batch_is_decoded_in_pieces_as_large_as_the_first_ones(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engines of a batch get any number of its blocks at a time; the messages of the next batch do not
    depend on it.
    """
    from connectors.spark import streaming

    config = load_config(str(stream_config(tmp_path, "b:1")))
    stream = Stream(config, ReferenceTrial(config).engine_settings(event_time=True), only_source(config))
    steps = Steps(stream, CheckpointLedger(tmp_path / "state", config), lambda batch: {}, lambda batch: None)
    pieces: list[int] = []

    def counted(session: Any, blocks: Any, *arguments: Any) -> Any:
        pieces.append(blocks.filter(f"kind = {int(BlockKind.SHARE)} and model = 'erm'").count())
        return by_unit(session, blocks, *arguments)

    numbers = session.range(0, 1000, 1, 1).selectExpr("hash(cast(id as int)) AS hash").collect()
    assert [row.hash for row in numbers] == list(map(spark_hash, range(1000))), "units are spread by it"
    monkeypatch.setattr(streaming, "by_unit", counted)
    monkeypatch.setattr("connectors.spark.replaying._BLOCKS_AT_ONCE", 1)
    for number in range(2):
        first = 1000 * number
        rows = [
            (
                "p-0",
                i,
                1_700_000_000_000 + i,
                b'{"id": "%d", "model": "erm", "task": "t", "scores": [0.9, 0.1]}' % i,
            )
            for i in range(first, first + 1000)
        ]
        columns = "partition string, offset long, milliseconds long, value binary"
        steps.take(session.createDataFrame(rows, columns).coalesce(1), number)
    assert pieces == [1, 1]
    assert steps.ledger.committed.received == 2000


def test_options_are_said_in_the_words_of_kafkas_client(tmp_path: Path) -> None:
    spark_options = reader_options(
        source(options={"auto_offset_reset": "latest", "check_crcs": False, "fetch_min_bytes": 1000})
    )
    assert spark_options == {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "p",
        "startingOffsets": "latest",
        "kafka.check.crcs": "false",
        "kafka.fetch.min.bytes": "1000",
    }
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    spark_options = reader_options(
        source(options=login | {"sasl_plain_username": USER, "sasl_plain_password": 'a"\\b'})
    )
    assert spark_options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="a\\"\\\\b";'
    )
    assert reader_options(source(mapping={"format": "cloudevents", "id": "id"}))["includeHeaders"] == "true"
    assert "includeHeaders" not in reader_options(source(mapping={"id": "id"}))


@pytest.mark.skipif(OPENSSL is None, reason="the openssl command makes certificates")
def test_certificates_are_handed_on_as_texts(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.sign("client")
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.cert),
        "ssl_certfile": str(cert),
        "ssl_keyfile": str(key),
        "ssl_password": "secret",
        "ssl_check_hostname": False,
    }
    spark_options = reader_options(source(options=options))
    assert {name: value for name, value in spark_options.items() if ".ssl." in name} == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.cert.read_text(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": cert.read_text(),
        "kafka.ssl.keystore.key": key.read_text(),
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    key.write_text(key.read_text().replace("BEGIN PRIVATE KEY", "BEGIN EC PRIVATE KEY"))
    with pytest.raises(ConfigError, match=r"ssl_keyfile: expected a key in PKCS #8 .* convert it: openssl"):
        reader_options(source(options=options))
    del options["ssl_certfile"]
    with pytest.raises(ConfigError, match=r"options.ssl_certfile: expected a file, as ssl_c"):
        reader_options(source(options=options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"ssl_ciphers": "A"},
            r"sources.kafka.options.ssl_ciphers: not handed on to Spark, got 'A'",
        ),
        ({"fetch_min_byte": 1}, r"options.fetch_min_byte: not handed on to Spark, got 1; allowed are"),
        ({"auto_offset_reset": "none"}, r"auto_offset_reset: on Spark expected one of earliest, latest, got"),
        (
            {"fetch_min_bytes": "x"},
            r"sources.kafka.options.fetch_min_bytes: expected a whole number, got",
        ),
        ({"sasl_mechanism": "GSSAPI"}, r"sasl_mechanism: on Spark expected one of PLAIN, SCRAM-.*got GSSAPI"),
        ({"security_protocol": "SASL_SSL"}, r"sasl_mechanism: on Spark expected one of PLAIN.*got none"),
        ({"ssl_cafile": "/absent"}, r"sources.kafka.options.ssl_cafile: there is no file /absent; correct"),
        ({"sasl_plain_password_file": "/absent"}, r"sources.kafka.options.sasl_plain_password_file: /absent"),
    ],
)
def test_options_that_spark_cannot_be_told_are_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reader_options(source(options=options))


def test_a_password_that_cannot_be_handed_on_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        reader_options(source(driver="confluent", options={"ssl.key.password": "hush"}))
    assert "ssl.key.password" in str(caught.value)
    assert "hush" not in str(caught.value)
