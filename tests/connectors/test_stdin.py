"""Standard input: real pipes, real files in its place, and streams in memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from connectors.stdin import StdinSource
from monitor.base.errors import SourceError
from monitor.base.source import EndOfSource, RawSkipped


@pytest.fixture
def pipe():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb", buffering=0) as writer:
        source = StdinSource(stream=reader)
        source.open({})
        yield source, writer
        source.close()


def test_a_pipe_is_read_by_whole_lines_and_never_waited_for_longer_than_asked(pipe):
    source, writer = pipe
    assert source.read(0.01) == []
    writer.write(b"one\ntwo\nthr")
    [raw] = source.read(1.0)
    assert (raw.data, raw.start, raw.partition) == (b"one\ntwo\n", 0, "stdin")
    assert source.read(0.01) == []
    writer.write(b"ee\n")
    [raw] = source.read(1.0)
    assert (raw.data, raw.start) == (b"three\n", 8)
    assert source.up


def test_a_closed_pipe_gives_its_last_line_and_then_ends(pipe):
    source, writer = pipe
    writer.write(b"one\nhalf")
    assert [raw.data for raw in source.read(1.0)] == [b"one\n"]
    writer.close()
    assert [raw.data for raw in source.read(1.0)] == [b"half"]
    assert not source.up
    with pytest.raises(EndOfSource):
        source.read(1.0)


def test_a_line_that_is_too_long_is_counted(pipe):
    _, writer = pipe
    source = StdinSource(stream=pipe[0].stream, max_line_bytes=1000)
    source.open({})
    writer.write(b"x" * 20_000)
    assert source.read(0.01) == []
    writer.write(b"x" * 10_000 + b"\nshort\n")
    skipped, block = source.read(1.0)
    source.close()
    assert isinstance(skipped, RawSkipped)
    assert (skipped.size, skipped.head, block.data, block.start) == (30_001, b"x" * 2000, b"short\n", 30_001)


SCRIPT = """
from monitor.base.source import EndOfSource
from connectors.stdin import StdinSource
source = StdinSource()
source.open({"stdin": 3})
try:
    while True:
        for raw in source.read(5.0):
            print(raw.start, raw.data)
except EndOfSource:
    print("end")
"""


def test_an_ordinary_file_can_stand_for_standard_input(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(b"one\ntwo")
    with path.open("rb") as file:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], stdin=file, capture_output=True, text=True, check=True
        )
    # The position of an earlier run means nothing to this one.
    assert run.stdout.splitlines() == ["0 b'one\\n'", "4 b'two'", "end"]


def test_standard_input_that_is_closed_is_an_error_that_says_what_to_do():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, preexec_fn=lambda: os.close(0)
    )
    message = "Standard input is closed; pipe records into the command, or use a file source"
    assert run.stderr.splitlines()[-1] == f"monitor.base.errors.SourceError: {message}"


def test_a_stream_in_memory_and_a_closed_one():
    source = StdinSource("mine", stream=io.BytesIO(b"one\ntwo\n"))
    source.open({})
    assert [(raw.data, raw.partition) for raw in source.read(0.0)] == [(b"one\ntwo\n", "mine")]
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(SourceError, match="Standard input is closed"):
        StdinSource(stream=closed).open({})


def test_a_json_array_is_read_element_by_element():
    stream = io.BytesIO(b'[\n {"id": 1},\n {"id": 2}\n]\n')
    source = StdinSource(stream=stream)
    source.open({})
    (raw,) = source.read(0.0)
    assert [each for each in map(bytes.strip, raw.data.splitlines()) if each] == [b'{"id": 1}', b'{"id": 2}']
