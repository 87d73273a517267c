"""Keys of ids: the same everywhere and always, because snapshots hold them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.base import records
from monitor.base.records import NO_ID, TaskLayout, id_keys, mix
from tests.examples import examples

_64_BITS = 2**64 - 1

# Lone surrogates too: a table can hold them, and they must not stop the ids beside them.
_ids = st.text(st.characters(exclude_categories=()), max_size=40)


def slow_mix(x: int) -> int:
    """Return the finaliser of splitmix64, a step a line."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _64_BITS
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _64_BITS
    return x ^ (x >> 31)


def slow_key(text: str) -> int:
    """Return the key of one id, from its bytes."""
    data = text.encode("utf-8", "surrogatepass")
    if not data:
        return 0
    key = slow_mix(len(data) * 0x9E3779B97F4A7C15 & _64_BITS)
    for start in range(0, len(data), 8):
        key = slow_mix(key ^ int.from_bytes(data[start : start + 8], "little"))
    return key or 1


@examples(300)
@given(st.lists(_ids, max_size=20))
def test_keys_are_those_of_the_slow_hash_whatever_stands_beside(ids: list[str]) -> None:
    assert id_keys(ids).tolist() == [slow_key(text) for text in ids]


def test_keys_do_not_change_from_release_to_release() -> None:
    # From this file's own slow_key, written down: stored states hold keys made by older releases.
    assert id_keys(["req-81", "a", "ü", "0123456789abcdef"]).tolist() == [
        8564003275869974156,
        3764562023654139118,
        16479292900148742190,
        18306263636069666052,
    ]


def test_keys_do_not_depend_on_the_process() -> None:
    program = "from monitor.base.records import id_keys; print(id_keys(['req-81', 'ü' * 30]).tolist())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{[slow_key('req-81'), slow_key('ü' * 30)]}\n"}


def test_only_the_empty_id_has_the_key_of_none() -> None:
    assert id_keys(["", "x", ""]).tolist() == [NO_ID, slow_key("x"), NO_ID]
    assert id_keys([]).dtype == np.uint64
    assert len(id_keys([])) == 0


def test_an_id_whose_hash_is_that_of_none_has_another_key() -> None:
    # The second word must equal the key after the first; about one first word in 256 gives ASCII.
    begun = slow_mix(16 * 0x9E3779B97F4A7C15 & _64_BITS)
    for i in range(10_000):
        head = f"{i:08d}".encode()
        tail = slow_mix(begun ^ int.from_bytes(head, "little")).to_bytes(8, "little")
        if tail.isascii():
            assert id_keys([(head + tail).decode()]).tolist() == [1]
            return
    pytest.fail("no such id among 10,000")


def test_ids_that_only_differ_in_trailing_zero_bytes_or_in_length_have_different_keys() -> None:
    ids = ["a", "a\0", "a\0\0", "\0", "\0\0", "\0" * 8, "\0" * 9, "aa", "a" * 8, "a" * 9]
    assert len(set(id_keys(ids).tolist())) == len(ids)


def test_half_a_million_counted_ids_share_no_key() -> None:
    short = [str(i) for i in range(250_000)]
    longer = [f"request-{i:012d}-eu" for i in range(250_000)]
    assert len(np.unique(id_keys(short + longer))) == 500_000


def test_the_low_bits_of_keys_spread_as_drawn_ones_do() -> None:
    # 65,536 counted ids into 1,024 slots: 64 each. Pearson's statistic has mean 1023 and sd 45.2; 5 sd
    # either way fails a good hash once in a million, and the ids are fixed.
    slots = id_keys([f"req-{i}" for i in range(65_536)]) % np.uint64(1024)
    counts = np.bincount(slots.astype(np.int64), minlength=1024)
    statistic = ((counts - 64.0) ** 2 / 64.0).sum()
    assert abs(statistic - 1023.0) < 5 * np.sqrt(2 * 1023.0)


def test_very_long_ids_are_hashed_in_pieces_with_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_BYTES_OF_IDS", 256)
    ids = [f"id-{i}" * (1 + 30 * (i % 7 == 0)) for i in range(50)]
    assert id_keys(ids).tolist() == [slow_key(text) for text in ids]


def test_a_huge_id_costs_its_neighbours_no_step_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    short = [f"r-{i}" for i in range(5_000)]
    alone, steps = id_keys(short), [0]

    def counting(x: records.Keys) -> records.Keys:
        steps[0] += 1
        return mix(x)

    monkeypatch.setattr(records, "mix", counting)
    keys = id_keys([*short, "x" * 2_000_000, "x" * 2_000_001, "\udcff" * 5_000])
    assert steps[0] < 20
    assert keys[:5_000].tolist() == alone.tolist()
    assert len(set(keys[5_000:].tolist())) == 3


def test_mix_gives_the_first_numbers_of_splitmix64() -> None:
    # The published generator: its state grows by the golden ratio, its outputs are mixed states.
    state = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(state).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@examples(200)
@given(st.lists(st.integers(0, _64_BITS), max_size=20))
def test_mix_is_one_to_one_and_leaves_its_input_alone(numbers: list[int]) -> None:
    given_numbers = np.array(numbers, dtype=np.uint64)
    mixed = mix(given_numbers)
    assert mixed.tolist() == [slow_mix(number) for number in numbers]
    assert len(set(mixed.tolist())) == len(set(numbers))
    assert given_numbers.tolist() == numbers


def test_scores_have_a_column_a_class_and_one_for_a_confidence() -> None:
    assert TaskLayout("t", ("a", "b", "c")).width == 3
    assert TaskLayout("t", ()).width == 1
