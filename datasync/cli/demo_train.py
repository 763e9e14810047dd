"""The training job of `datasync demo`: reads a licence text, tells its category.

A script of its own, as a user's would be: it knows datasync only by the environment variable that `datasync run` sets,
prints what it does, and writes its figures to `metrics.json` in the working directory. The model is a softmax over
hashed words and pairs of words (tf-idf), fitted with Adam on all texts at once; every fifth text, chosen by a hash of
the text, is held out.
"""

import json
import os
import re
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

DIMENSIONS = 8192  # buckets that words are hashed to
LABEL_TEXTS = 90  # rarer categories are left out: too few texts to learn from and to measure with
TEXT_CHARACTERS = 40  # shorter texts say nothing
HELD_OUT = 5  # one text in five
STEPS = 80
RATE = 0.05

_CATEGORY = re.compile(r"^category: (.+)$", re.MULTILINE)


def read_texts(folder: Path) -> dict[str, str]:
    """Return the category of every text beneath *folder*; the front matter, which names it, is no part of the text."""
    found = {}
    for path in sorted(folder.rglob("*.LICENSE")):
        front, _, text = path.read_text("utf-8").removeprefix("---").partition("\n---")
        category = _CATEGORY.search(front)
        if category and len(text.strip()) >= TEXT_CHARACTERS:
            found[text.strip().lower()] = category[1]  # a text that is there twice counts once
    common = {label for label, count in Counter(found.values()).items() if count >= LABEL_TEXTS}
    return {text: label for text, label in found.items() if label in common}


def count_words(text: str) -> Array:
    """Return how often each bucket's words and pairs of words occur, on a logarithmic scale."""
    words = re.findall(r"[a-z]+", text)
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    buckets = [crc32(item.encode()) % DIMENSIONS for item in words + pairs]
    return np.log1p(np.bincount(buckets, minlength=DIMENSIONS)).astype(np.float32)


def weigh(counts: Array, learned: NDArray[np.bool_]) -> Array:
    """Return unit vectors in which rare words weigh more; rarity is taken from the learned texts alone."""
    texts_with = (counts[learned] > 0).sum(axis=0)
    weighed = counts * np.log((1 + learned.sum()) / (1 + texts_with)).astype(np.float32)
    lengths = np.maximum(np.linalg.norm(weighed, axis=1, keepdims=True), 1e-9)
    return np.asarray(weighed / lengths, dtype=np.float32)


def fit(features: Array, labels: NDArray[np.intp], classes: int) -> Array:
    """Return the weights after `STEPS` steps of Adam on the cross entropy."""
    targets = np.eye(classes, dtype=np.float32)[labels]
    weights = np.zeros((DIMENSIONS, classes), np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        scores = features @ weights
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        gradient = features.T @ (chances - targets) / len(features)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        weights -= RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return weights


def main() -> None:
    """Train on the dataset's local path and tell how well the model does on texts that it never saw."""
    folder = Path(os.environ["DATASYNC_DATASET_LICENSES"])
    began = time.monotonic()
    texts = read_texts(folder)
    names, labels = np.unique(list(texts.values()), return_inverse=True)
    held_out = np.array([crc32(text.encode()) % HELD_OUT == 0 for text in texts])
    learned = ~held_out
    print(f"read {len(texts):,} texts in {len(names)} categories from {folder}", flush=True)
    features = weigh(np.array([count_words(text) for text in texts]), learned)
    weights = fit(features[learned], labels[learned], len(names))
    right = float(((features[held_out] @ weights).argmax(axis=1) == labels[held_out]).mean())
    commonest = np.bincount(labels[learned]).argmax()
    majority = float((labels[held_out] == commonest).mean())
    print(f"trained on {learned.sum():,} texts, {STEPS} steps, {time.monotonic() - began:.1f} s")
    print(
        f"held-out accuracy {right:.1%} on {held_out.sum()} texts (always saying {names[commonest]!s}: {majority:.1%})"
    )
    figures = {"texts": len(texts), "held_out": int(held_out.sum()), "accuracy": right, "majority": majority}
    Path("metrics.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
