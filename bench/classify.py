"""Accuracy of classifiers on real texts: ours beside linear models, trained on the same data, in one run.

    python bench/classify.py imdb                                        # linear models alone
    python bench/classify.py 20news --runs runs/20news runs/20news-han   # and trained runs

lr        TF-IDF of words and pairs of words, logistic regression (scikit-learn)
svm       the same with a linear support vector machine
ngrams    the mean of embeddings of words and of pairs of words, hashed, and a linear layer (Joulin et al. 2017)

All are judged on texts kept apart from training: the file `dev` of 20news and the file `test` of imdb. Seconds are
those of training for the linear models, and of prediction for the runs.
"""

import argparse
import gzip
import re
import time
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch.nn import functional

from measure import log

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
COLUMNS = {"20news": (0, 1), "imdb": (0, 2)}  # of label and text
TEST = {"20news": "dev", "imdb": "test"}
BUCKETS, WIDTH = 1 << 20, 64  # of hashed n-grams
Examples = tuple[list[str], list[str]]


def read(corpus: str, split: str, folder: Path) -> Examples:
    """Return labels and texts."""
    label, text = COLUMNS[corpus]
    with gzip.open(folder / corpus / f"{split}.tsv.gz", "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [row[label] for row in rows], [row[text] for row in rows]


def linear(kind: str, train: Examples, test: Examples) -> list[str]:
    """Train a linear model on TF-IDF and return its labels of the test texts."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, strip_accents="unicode")
    model = LogisticRegression(C=10.0, max_iter=1000) if kind == "lr" else LinearSVC(C=0.5)
    model.fit(vectors.fit_transform(train[1]), train[0])
    return [str(label) for label in model.predict(vectors.transform(test[1]))]


def ngrams(train: Examples, test: Examples, epochs: int = 10) -> list[str]:
    """Train the mean of n-gram embeddings with a linear layer and return its labels of the test texts."""
    torch.manual_seed(1)
    classes = sorted(set(train[0]))
    bags = torch.nn.EmbeddingBag(BUCKETS, WIDTH, mode="mean", sparse=True)
    torch.nn.init.uniform_(bags.weight, -1 / WIDTH, 1 / WIDTH)
    output = torch.nn.Linear(WIDTH, len(classes))
    sparse = torch.optim.SparseAdam(bags.parameters(), 5e-3)
    dense = torch.optim.Adam(output.parameters(), 5e-3)
    ids = [torch.tensor(_hashes(text)) for text in train[1]]
    labels = torch.tensor([classes.index(label) for label in train[0]])
    random = np.random.default_rng(1)
    for _ in range(epochs):
        for batch in np.array_split(random.permutation(len(ids)), max(1, len(ids) // 32)):
            parts = [ids[at] for at in batch]
            offsets = torch.tensor([0, *np.cumsum([len(part) for part in parts[:-1]])])
            loss = functional.cross_entropy(output(bags(torch.cat(parts), offsets)), labels[batch])
            for optimiser in (sparse, dense):
                optimiser.zero_grad()
            torch.autograd.backward(loss)
            sparse.step()  # type: ignore[no-untyped-call]
            dense.step()
    with torch.no_grad():
        chosen = [int(output(bags(torch.tensor([_hashes(text)]))).argmax()) for text in test[1]]
    return [classes[at] for at in chosen]


def _hashes(text: str) -> list[int]:
    """Return the bucket of each word and each pair of words."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    grams = words + [f"{first} {second}" for first, second in pairwise(words)]
    return [zlib.crc32(gram.encode()) % BUCKETS for gram in grams] or [0]


def main() -> None:
    """Train all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=COLUMNS)
    parser.add_argument("--runs", nargs="*", default=[], help="trained runs to judge too")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    train, test = read(options.corpus, "train", options.data), read(options.corpus, TEST[options.corpus], options.data)
    rows: list[tuple[str, float, float, float]] = []

    def judge(name: str, predicted: list[str], seconds: float) -> None:
        gold = np.array(test[0])
        right = np.array(predicted) == gold
        f1 = []
        for label in sorted(set(test[0])):
            found = np.array(predicted) == label
            f1.append(2 * (right & found).sum() / max(1, found.sum() + (gold == label).sum()))
        rows.append((name, 100 * float(right.mean()), 100 * float(np.mean(f1)), seconds))
        log(f"{name}: {rows[-1][1]:.1f} %")

    for name in ("lr", "svm", "ngrams"):
        start = time.perf_counter()
        predicted = ngrams(train, test) if name == "ngrams" else linear(name, train, test)
        judge(name, predicted, time.perf_counter() - start)
    for run in options.runs:
        import regard

        classifier = regard.load(run)
        start = time.perf_counter()
        judge(run, [result.label for result in classifier(test[1])], time.perf_counter() - start)
    print(f"{options.corpus}, {len(train[0]):,} training texts, {len(test[0]):,} test texts\n")
    print(f"{'':24}{'accuracy':>10}{'macro F1':>10}{'seconds':>10}")
    for name, accuracy, macro, seconds in rows:
        print(f"{name:24}{accuracy:>9.1f}%{macro:>9.1f}%{seconds:>10.1f}")


if __name__ == "__main__":
    main()
