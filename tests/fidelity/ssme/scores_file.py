"""The scores of civilcomments, which are not part of this repository.

`civilcomments.npz` holds the predictions that the SSME paper publishes with its reference code (Shanmugam et
al., github.com/divyashan/SSME), as three arrays: `score` (133,782 comments, 9 models) float32, the
probability of toxicity; `label` (133,782,) int8; `model`, the names of the columns. Commands that read it take
`--data FILE`; they and the tests read the variable `BLINDSIGHT_DATA`, which names the file or its folder.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import numpy as np

from monitor.base.records import Floats, Ints

FILE = "civilcomments.npz"
SHA256 = "941892d178a2371b11ec3325e4b5286e7394f21db32469f3e704866ecf5cb5cd"
VARIABLE = "BLINDSIGHT_DATA"
MISSING = (
    f"set {VARIABLE} to {FILE}, or to its folder. The file is not part of this repository: it holds the "
    f"predictions published with the SSME paper's code (github.com/divyashan/SSME); its SHA-256 is {SHA256}"
)


def find_file() -> Path:
    """Return the path of the scores.

    Raises
    ------
    FileNotFoundError
        `BLINDSIGHT_DATA` is not set, or names no file that can be read.
    ValueError
        The file's SHA-256 is another.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        raise FileNotFoundError(MISSING)
    path = Path(value) / FILE if Path(value).is_dir() else Path(value)
    _check(path)
    return path


@cache
def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileNotFoundError(f"{VARIABLE}: {path}: {error.strerror}; {MISSING}") from error
    if digest != SHA256:
        raise ValueError(f"{VARIABLE}: the SHA-256 of {path} is {digest}; {MISSING}")


def read_scores(models: int) -> tuple[Floats, Ints]:
    """Return the scores (rows, models) of the positive class and the labels (rows,), in the file's order."""
    with np.load(find_file()) as file:
        return file["score"][:, :models].astype(np.float64), file["label"].astype(np.int64)
