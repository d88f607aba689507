"""Speed of finding the nearest word of each descriptor, as a ratio to faiss's exact search in the same run.

    python benchmarks/assignment.py [--features 8000] [--words 256000] [--codebook FILE] [--json FILE]

CPU time of both on one thread, measured by turns. Without a codebook file the words are entries of the built-in
database with noise, which costs as much as real ones. The ratio should be at most 1.1.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import faiss
import numpy as np

from featveil.core import Points
from featveil.databases import Database, builtin, load_database, nearest_words
from featveil.distances.threads import one_thread_each, single_threaded

LIMIT = 1.1


def noisy(count: int, rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Descriptors (count, 128) that resemble the built-in entries."""
    entries = builtin("sift").values
    chosen = entries[rng.integers(0, len(entries), count)] + rng.normal(0, 12, (count, 128))
    return np.clip(chosen, 0, None).astype(np.float32)


def main() -> None:
    """Measure, print one line, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=8000)
    parser.add_argument("--words", type=int, default=256_000)
    parser.add_argument("--codebook", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    given = options.codebook
    codebook = load_database(given) if given else Database.from_array(noisy(options.words, rng), "sift", 1, rng=rng)
    points = Points(noisy(options.features, rng))
    unit = points.values / np.linalg.norm(points.values, axis=1, keepdims=True)
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(codebook.size)
    index.add(codebook.points())
    nearest_words(points.take(np.arange(64)), codebook)  # compiles
    ours, theirs = [], []
    with single_threaded(), one_thread_each():
        for _ in range(options.repeat):
            start = time.process_time()
            reference = index.search(unit, 1)[1][:, 0]
            theirs.append(time.process_time() - start)
            start = time.process_time()
            words = nearest_words(points, codebook)[0]
            ours.append(time.process_time() - start)
    ratio = median(own / other for own, other in zip(ours, theirs, strict=True))
    same = float((words == reference).mean())
    result = {"features": len(points), "words": len(codebook), "seconds": median(ours), "faiss": median(theirs)}
    result |= {"ratio": ratio, "same_word": same, "limit": LIMIT}
    print(
        f"{len(points)} descriptors, {len(codebook)} words: {result['seconds']:.2f} s, {ratio:.2f} of faiss's exact"
        f" search (at most {LIMIT}{', ABOVE' if ratio > LIMIT else ''}); the same word for {same:.2%}"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
