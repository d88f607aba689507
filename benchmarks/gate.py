"""Speed and size of the gate, beside what one would use instead, in one run.

    python benchmarks/gate.py [--scene FOLDER] [--every 6] [--entries 60000] [--map-images 1000] [--repeat 15]
        [--maps FOLDER] [--json FILE]

Rows, each with the most that its ratio should be:

- gating 2,000 features of a photograph that was not mapped against 60,000 entries of 16 bytes, the whole gate and its
  look-up alone, over faiss's exact flat search of the same features among the same descriptors as they are;
- bytes of a sketch for each observation of a map of real tracks, and for each of its entries, which are somewhat more;
- bytes of a gated release over those of the raw features, positions with both, at 4 and at 1 byte a component;
- processor time to find the pose of a gated query, over that of the raw query matched with the 8 images nearest;
  of these and of the sizes the median and the worst over every so many images of the scene, each left out of its map;
- minutes and memory to build the sketch of a map of 1,000 images with 2,000 points each, in a process of its own.

Both sides of a ratio run right after another on one thread, so that a noisy machine disturbs them alike; it is the
median over the repetitions. A row above its limit is marked, not an error, because machines are noisy. Rows of
photographs need a scene with true cameras (--scene, or FEATVEIL_DATA): without one only the last rows are measured. The
scene is mapped first, once for each query, which takes minutes; --maps keeps the maps for another run.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import faiss
import numpy as np

from featveil.core import Features, Points, PrivateFeatures
from featveil.databases import builtin
from featveil.datasets import load_map_scenes
from featveil.defenses import Gate, privatize
from featveil.distances.threads import one_thread_each, single_threaded
from featveil.formats import veil
from featveil.gate.map_sketch import unit
from featveil.gate.sketch_building import MapFacts, Observations, build_sketch
from featveil.gate.sketch_files import encode_sketch
from featveil.gate.thresholds import calibrate
from featveil.geometry.models import SparseModel
from featveil.lab.localization_parts.localization_maps import MapsWithout
from featveil.lab.scene_studies import RAW, SceneReleases, Settings
from featveil.pipelines.map_parts.localizer import Localizer
from featveil.pipelines.map_parts.observed import facts_of, foreign_to, observations

FEATURES = 2000
NEAREST = 8  # images that the raw query is matched with
POINTS, SEEN = 2000, 3  # of each image of the large map, and how many images see a point
NOISE = 0.05  # of each component, about what separates two views of a SIFT feature
MINUTES, GIGABYTES = 2, 2


@dataclass(frozen=True)
class Row:
    """One figure, its unit and the most that it should be."""

    name: str
    value: float
    limit: float
    unit: str = "x"
    about: str = ""

    def __str__(self) -> str:
        mark = "  ABOVE" if self.value > self.limit else ""
        return f"{self.name:54s} {self.value:8.3f} {self.unit:6s} at most {self.limit:<6.3g} {self.about}{mark}"


def default_scene() -> Path:
    """A scene of the real data, which may be absent."""
    data = Path(os.environ.get("FEATVEIL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return data / "strecha" / "castle-P30"


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """What `work` takes."""
    start = clock()
    work()
    return clock() - start


def ratios(
    first: Callable[[], object], second: Callable[[], object], repeat: int, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Median milliseconds of both, each in turn, and the median ratio of the first to the second."""
    first(), second()  # prepares and compiles
    times = [(seconds(first, clock), seconds(second, clock)) for _ in range(repeat)]
    own, other = (1000 * median(side) for side in zip(*times, strict=True))
    return own, other, median(one / two for one, two in times)


class Mapped:
    """A scene, and the map of all its images but `query`, with its sketch."""

    def __init__(self, maps: MapsWithout, query: str) -> None:
        self.maps, self.query, self.releases = maps, query, maps.releases
        self.model: SparseModel = maps.without(query, RAW)
        self.features: Features = self.releases.raw(query)
        sketch = build_sketch(facts_of(self.model, "sift"), self.observations)
        self.sketch = replace(sketch, calibration=calibrate(sketch, self.observations(), foreign_to("sift")))
        self.release: PrivateFeatures = privatize(self.features, Gate(self.sketch))

    def observations(self) -> Iterator[Observations]:
        """What the images of the map saw of its points."""
        return observations(self.model, self.releases.raw, sorted(self.model.views))

    def observed(self) -> int:
        """How many keypoints of the model show a point."""
        return sum(int((view.points >= 0).sum()) for view in self.model.views.values())


def mapped(folder: Path, every: int, maps: Path) -> Iterator[Mapped]:
    """Every so many images of a scene, each left out of its map."""
    scene = load_map_scenes(folder)[0]
    releases = SceneReleases(scene, Settings(max_features=FEATURES))
    without = MapsWithout(releases, NEAREST, maps)
    return (Mapped(without, query) for query in sorted(scene.images)[::every])


def gating(mapped: Mapped, entries: int, repeat: int) -> Iterator[Row]:
    """The gate over faiss's flat search: features of the map's images are entries, each of a point of its own."""
    scene = mapped.releases.scene
    every = SceneReleases(scene, Settings(max_features=entries // len(mapped.model.views) + FEATURES)).raw
    values = np.concatenate([unit(every(name).descriptors) for name in sorted(mapped.model.views)])
    if len(values) < entries:
        sys.exit(f"the images of the scene have {len(values)} features: ask for fewer --entries, or name a larger one")
    values = np.ascontiguousarray(values[np.linspace(0, len(values) - 1, entries).astype(np.int64)])
    facts = MapFacts(mapped.model.digest, entries, 1, "sift")
    large = build_sketch(facts, lambda: [Observations(0, np.arange(entries), Points(values))])
    large = replace(large, calibration=mapped.sketch.calibration)
    assert large.calibration is not None
    queries, tau = mapped.features, large.calibration.tau
    asked = unit(queries.descriptors)
    index = faiss.IndexFlatL2(large.size)
    index.add(values)
    gate = Gate(large, min_share=0.0, min_features=1)
    works: dict[str, Callable[[], object]] = {
        "the whole gate": lambda: privatize(queries, gate),
        "its look-up alone": lambda: large.look_up(queries.descriptors, tau, gate.candidates),
    }
    about = f"{len(queries)} features, {entries} entries"
    for name, work in works.items():
        with single_threaded(), one_thread_each():
            own, other, ratio = ratios(work, lambda: index.search(asked, 1), repeat, time.perf_counter)
        yield Row(f"{name} / faiss, exact flat search", ratio, 1, about=f"{own:.0f} / {other:.0f} ms, {about}")


def sketch_sizes(mapped: Mapped) -> Iterator[Row]:
    """Bytes of the sketch for each observation of the model, and for each of its entries."""
    whole, seen, entries = len(encode_sketch(mapped.sketch)), mapped.observed(), len(mapped.sketch)
    yield Row("sketch for each observation", whole / seen, 22, "bytes", f"{whole} bytes, {seen} observations")
    yield Row("sketch for each entry", whole / entries, 22, "bytes", f"{entries} entries")


def release_sizes(mapped: Mapped) -> tuple[float, float]:
    """Bytes of the release over those of the raw features with positions, at 4 and at 1 byte a component."""
    keypoints = mapped.features.keypoints
    assert keypoints is not None
    positions = replace(mapped.features, keypoints=keypoints.positions_only())
    sent, raw = (len(veil.encode(one)) for one in (mapped.release, positions))
    return sent / raw, sent / (raw - 3 * mapped.features.descriptors.values.size)


def pose(mapped: Mapped, repeat: int) -> float:
    """Processor time of a gated query over that of a raw one; the features of the map are in memory."""
    localizer = Localizer(mapped.model, mapped.releases.raw)
    camera, images = mapped.maps.scene.cameras[mapped.query], mapped.maps.nearest(mapped.query, mapped.model)
    inliers = dict[str, int]()

    def place(name: str, query: Features | PrivateFeatures) -> None:
        inliers[name] = localizer.locate(query, camera, True, images).inliers

    with single_threaded(), one_thread_each():
        own, other, ratio = ratios(
            lambda: place("gated", mapped.release), lambda: place("raw", mapped.features), repeat, time.process_time
        )
    print(f"  {mapped.query}: {own:.0f} / {other:.0f} ms, {inliers['gated']} / {inliers['raw']} inliers", flush=True)
    return ratio


def over_queries(measured: dict[str, tuple[list[float], float]]) -> Iterator[Row]:
    """Median and worst of each, with the most that it should be."""
    for name, (values, limit) in measured.items():
        about = f"{len(values)} queries"
        yield Row(f"{name}, median", median(values), limit, about=about)
        yield Row(f"{name}, worst", max(values), limit, about=about)


def large_map(images: int) -> Iterator[Observations]:
    """Neighbouring images see the same points, descriptors of the built-in database with noise."""
    entries = builtin("sift").points()
    for image in range(images):
        rng = np.random.default_rng(image)
        points = np.arange(POINTS) + image * (POINTS // SEEN)
        values = entries[points % len(entries)] + NOISE * rng.standard_normal((POINTS, entries.shape[1]))
        yield Observations(image, points, Points(np.abs(values).astype(np.float32)))


def build_large(images: int) -> tuple[float, float, int]:
    """Minutes and gigabytes that the sketch of a large map takes, calibrated and encoded, and its entries."""
    facts = MapFacts("0" * 64, images * (POINTS // SEEN) + POINTS, images, "sift")

    def build() -> bytes:
        sketch = build_sketch(facts, lambda: large_map(images))
        return encode_sketch(replace(sketch, calibration=calibrate(sketch, large_map(images), foreign_to("sift"))))

    spent = seconds(build)
    return spent / 60, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, images * POINTS


def building(images: int) -> Iterator[Row]:
    """In a process of its own, so that memory is that of the sketch."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        minutes, gigabytes, entries = process.submit(build_large, images).result()
    about = f"{images} images, {entries} observations, calibration included"
    yield Row("building a sketch, time", minutes, MINUTES, "min", about)
    yield Row("building a sketch, memory", gigabytes, GIGABYTES, "GB", "the whole process")


def rows(options: argparse.Namespace, maps: Path) -> Iterator[Row]:
    """Every row that can be measured here."""
    if options.scene.is_dir():
        floats, small, poses = list[float](), list[float](), list[float]()
        for number, one in enumerate(mapped(options.scene, options.every, maps)):
            if number == 0:
                yield from gating(one, options.entries, options.repeat)
                yield from sketch_sizes(one)
            at_4, at_1 = release_sizes(one)
            floats, small = [*floats, at_4], [*small, at_1]
            poses.append(pose(one, options.repeat))
        yield from over_queries(
            {
                "gated release / raw features": (floats, 1 / 15),
                "gated release / raw features in bytes": (small, 1 / 15),
                f"pose of a gated query / raw, {NEAREST} images": (poses, 0.3),
            }
        )
    else:
        print(f"no scene at {options.scene}: only the building of a sketch is measured", flush=True)
    yield from building(options.map_images)


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", type=Path, default=default_scene())
    parser.add_argument("--every", type=int, default=6)
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument("--map-images", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--maps", type=Path, help="keep the map here")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured = []
    with TemporaryDirectory() as temporary:
        for row in rows(options, options.maps or Path(temporary)):
            print(row, flush=True)
            measured.append(asdict(row))
    if options.json:
        options.json.write_text(json.dumps({"rows": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
