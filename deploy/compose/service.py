"""A model's service: it writes a reference file, then sends answers and their labels to Kafka.

    python service.py reference                      write reference.ndjson: answers with labels, of before
    python service.py answer [--brokers HOST:PORT]   answer 100 requests a second, until Ctrl-C

After half a minute of answers, one feature no longer arrives, and the model gets 0 for it. Every tenth answer
gets a label, ten seconds later. Start `answer` again, and the feature is back.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaProducer
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

CLASSES = ["ok", "toxic"]
TRAINING_ROWS, REFERENCE_ROWS = 10_000, 10_000
LABEL_EVERY, LABEL_SECONDS = 10, 10.0
STEP_SECONDS = 0.1


class Service:
    """A classifier, the requests that it gets, and what it logs of them."""

    def __init__(self) -> None:
        rows, labels = make_classification(
            40_000, n_features=8, n_informative=5, flip_y=0.02, class_sep=1.8, random_state=0
        )
        model = LogisticRegression().fit(rows[:TRAINING_ROWS], labels[:TRAINING_ROWS])
        requests = rows[TRAINING_ROWS:]
        self.lost = int(np.abs(model.coef_[0]).argmax())
        """The number of the feature that the model depends on most."""
        self._features, self._labels = requests.round(3).tolist(), labels[TRAINING_ROWS:].tolist()
        self._scores = model.predict_proba(requests).tolist()
        requests[:, self.lost] = 0.0
        self._scores_without = model.predict_proba(requests).tolist()

    def answer(self, number: int, is_lost: bool = False) -> dict[str, Any]:
        """Return what the service logs of a request: the scores, and the features that arrived."""
        row = number % len(self._labels)
        features = {f"x{j}": value for j, value in enumerate(self._features[row])}
        if is_lost:
            return {
                "model": "erm",
                "scores": self._scores_without[row],
                "features": features | {f"x{self.lost}": None},
            }
        return {"model": "erm", "scores": self._scores[row], "features": features}

    def label(self, number: int) -> str:
        """Return the true class of a request."""
        return CLASSES[self._labels[number % len(self._labels)]]


def write_reference(path: Path) -> None:
    """Write answers with their labels, from requests that the model was not trained on."""
    service = Service()
    records = (service.answer(row) | {"label": service.label(row)} for row in range(REFERENCE_ROWS))
    lines = [json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path}: {len(lines):,} answers with labels", flush=True)


def send_answers(brokers: str, rate: float, lose_after: float) -> None:
    """Send answers to the topic `predictions` and labels to the topic `labels`, with the time of now.

    Parameters
    ----------
    brokers : str
        ``host:port``.
    rate : float
        Answers a second, above 0.
    lose_after : float
        Seconds until the feature is lost.
    """
    service = Service()
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=20)

    def send(topic: str, record: dict[str, Any]) -> None:
        producer.send(topic, json.dumps(record).encode())

    start, sent, is_lost = time.time(), 0, False
    labels: deque[tuple[float, dict[str, Any]]] = deque()
    while True:
        now = time.time()
        if not is_lost and now >= start + lose_after:
            is_lost = True
            print(f"{time.strftime('%H:%M:%S')} feature x{service.lost} no longer arrives", flush=True)
        for number in range(sent, int((now - start) * rate)):
            name, row = f"{start:.0f}-{number}", REFERENCE_ROWS + number
            send("predictions", {"id": name, "time": now} | service.answer(row, is_lost))
            if number % LABEL_EVERY == 0:
                labels.append((now + LABEL_SECONDS, {"id": name, "label": service.label(row)}))
            sent = number + 1
        while labels and labels[0][0] <= now:
            due, label = labels.popleft()
            send("labels", label | {"time": due})
        time.sleep(STEP_SECONDS)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="service.py", description=__doc__)
    parser.add_argument("what", choices=("reference", "answer"))
    parser.add_argument("--brokers", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--rate", type=float, default=100.0, help="answers a second")
    parser.add_argument("--lose-after", type=float, default=30.0, help="seconds until the feature is lost")
    words = parser.parse_args()
    if words.rate <= 0:
        parser.error(f"--rate must be above 0, got {words.rate:g}")
    if words.what == "reference":
        write_reference(Path("reference.ndjson"))
    else:
        send_answers(words.brokers, words.rate, words.lose_after)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
