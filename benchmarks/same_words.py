"""How often two views of a point have the same word: what vocabulary matching lives on.

    python benchmarks/same_words.py SCENES CODEBOOK... [--max-features 1500]

SCENES is a folder in HPatches layout. Counted are the right ones (within 5 pixels) of the mutual nearest neighbours of
raw SIFT descriptors, over all image pairs. Where the words differ, their mean distance is shown, and beside it that of
random words of the codebook.
"""

import argparse
from pathlib import Path

import numpy as np

from featveil.databases import Database, load_database, nearest_words
from featveil.datasets import ImagePair, load_hpatches
from featveil.extractors import extract
from featveil.matching import NearestMatcher
from featveil.metrics import transfer_errors

PIXELS = 5.0


def words_of_both_views(
    pair: ImagePair, codebooks: list[Database], most: int
) -> list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """For each codebook, the words (2, n) of the right matches of a pair."""
    first, second = extract(pair.first, "sift", most), extract(pair.second, "sift", most)
    assert first.keypoints is not None and second.keypoints is not None
    matches = NearestMatcher().match(first.descriptors, second.descriptors)
    right = transfer_errors(matches, first.keypoints, second.keypoints, pair.homography) <= PIXELS
    i, j = matches.indices[right].T
    return [
        np.stack(
            [nearest_words(first.descriptors.take(i), book)[0], nearest_words(second.descriptors.take(j), book)[0]]
        )
        for book in codebooks
    ]


def main() -> None:
    """Measure, and print one line a codebook."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("codebooks", type=Path, nargs="+")
    parser.add_argument("--max-features", type=int, default=1500)
    options = parser.parse_args()
    books = [load_database(path) for path in options.codebooks]
    found = [words_of_both_views(pair, books, options.max_features) for pair in load_hpatches(options.scenes).pairs()]
    rng = np.random.default_rng(0)
    for place, (path, book) in enumerate(zip(options.codebooks, books, strict=True)):
        first, second = np.concatenate([of_pair[place] for of_pair in found], axis=1)
        differ = first != second
        apart = np.linalg.norm(book.unit(first[differ]) - book.unit(second[differ]), axis=1)
        random = np.linalg.norm(np.subtract(*book.unit(rng.integers(0, len(book), (2, 5000)))), axis=1)
        print(
            f"{path.stem} ({len(book):,}): the same word for {1 - differ.mean():.1%} of {len(first):,} right matches;"
            f" others {apart.mean():.2f} apart, random words {random.mean():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
