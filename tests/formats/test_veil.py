"""The `.veil` format: round trips, refusals, interrupted writing."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from featveil.core import (
    Features,
    FormatError,
    Guarantee,
    InputError,
    Keypoints,
    Points,
    PrivacyError,
    PrivateFeatures,
    Spec,
    Subspaces,
    WordSets,
)
from featveil.formats import veil

N, D, M = 7, 16, 3


def random_keypoints(rng: np.random.Generator, full: bool) -> Keypoints:
    xy = rng.uniform(0, 640, (N, 2)).astype(np.float32)
    if not full:
        return Keypoints(xy)
    return Keypoints(xy, *(rng.uniform(0, 360, N).astype(np.float32) for _ in range(3)))


def raw_features(full: bool = True) -> Features:
    rng = np.random.default_rng(1)
    points = Points(rng.normal(size=(N, D)).astype(np.float32))
    if not full:
        return Features(points, "sift")
    return Features(points, "sift", random_keypoints(rng, True), (640, 480), np.arange(N))


def private_subspaces(defense: Spec | None = None) -> PrivateFeatures:
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(N, D, M)))[0].transpose(0, 2, 1)
    descriptors = Subspaces(rng.normal(size=(N, D)).astype(np.float32), basis)
    spec: Spec = {"name": "lifting", "dimension": M, "share": 0.1, "hybrid": True, "attribute": None}
    keypoints = random_keypoints(rng, False)
    return PrivateFeatures(descriptors, "rootsift", defense or spec, Guarantee("empirical"), keypoints, (640, 480))


def private_points(epsilon: float = 0.1) -> PrivateFeatures:
    rng = np.random.default_rng(3)
    points = Points(rng.normal(size=(N, D)).astype(np.float32))
    return PrivateFeatures(points, "sift", {"name": "subset"}, Guarantee("local-dp", epsilon))


def private_words(k: int = 3) -> PrivateFeatures:
    rng = np.random.default_rng(4)
    words = np.sort(np.stack([rng.choice(1000, k, replace=False) for _ in range(N)]), axis=1)
    descriptors = WordSets(words, "ab" * 32, 1000)
    spec: Spec = {"name": "subset", "epsilon": 10.0, "subset_size": k, "codebook": "ab" * 32}
    return PrivateFeatures(descriptors, "sift", spec, Guarantee("local-dp", 10.0), random_keypoints(rng, False))


EXAMPLES = {
    "raw": raw_features(),
    "raw, descriptors only": raw_features(full=False),
    "raw, empty": Features(
        Points(np.empty((0, D), np.float32)), "sift", Keypoints(np.empty((0, 2), np.float32)), (9, 9)
    ),
    "private subspaces": private_subspaces(),
    "private points": private_points(),
    "private words": private_words(),
    "private, one word each": private_words(1),
    "private, empty": PrivateFeatures(
        Subspaces(np.empty((0, D), np.float32), np.empty((0, M, D), np.float32)),
        "sift",
        {},
        Guarantee("empirical"),
    ),
}


def assert_same(left: Features | PrivateFeatures, right: Features | PrivateFeatures) -> None:
    """Fail unless both are of one type and every array is equal to the bit."""
    assert type(left) is type(right)
    assert (left.kind, left.image_size) == (right.kind, right.image_size)
    assert type(left.descriptors) is type(right.descriptors)
    if isinstance(left.descriptors, WordSets):
        assert repr(left.descriptors) == repr(right.descriptors)
    names = ("values", "offset", "basis", "words")
    pairs = [(getattr(left.descriptors, name, None), getattr(right.descriptors, name, None)) for name in names]
    assert (left.keypoints is None) == (right.keypoints is None)
    for name in ("xy", "scale", "orientation", "response"):
        pairs.append((getattr(left.keypoints, name, None), getattr(right.keypoints, name, None)))
    if isinstance(left, Features) and isinstance(right, Features):
        pairs.append((left.labels, right.labels))
    elif isinstance(left, PrivateFeatures) and isinstance(right, PrivateFeatures):
        assert left.defense == right.defense
        assert left.guarantee == right.guarantee
    for one, other in pairs:
        assert (one is None) == (other is None)
        if one is not None:
            assert other is not None
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("features", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_round_trip_is_exact(features: Features | PrivateFeatures, tmp_path: Path) -> None:
    veil.save(features, tmp_path / "a.veil")
    assert_same(veil.load(tmp_path / "a.veil"), features)
    assert_same(veil.load(str(tmp_path / "a.veil")), features)


@pytest.mark.parametrize("features", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_equal_features_give_equal_bytes(features: Features | PrivateFeatures) -> None:
    assert len({veil.encode(features) for _ in range(20)}) == 1
    assert veil.encode(veil.decode(veil.encode(features))) == veil.encode(features)


def test_loaded_arrays_are_read_only() -> None:
    loaded = veil.decode(veil.encode(private_points()))
    assert isinstance(loaded.descriptors, Points)
    with pytest.raises(ValueError, match="read-only"):
        loaded.descriptors.values[0, 0] = 1


def test_any_safetensors_reader_understands_it(tmp_path: Path) -> None:
    veil.save(private_subspaces(), tmp_path / "a.veil")
    with safetensors.safe_open(tmp_path / "a.veil", framework="numpy") as file:
        about = json.loads(file.metadata()["featveil"])
        assert set(file.keys()) == {"keypoints.xy", "subspaces.offset", "subspaces.basis"}
        assert file.get_tensor("subspaces.basis").shape == (N, M, D)
    assert about["content"] == "private"
    assert about["version"] == 1
    assert about["guarantee"] == {"kind": "empirical", "epsilon": None, "unit": "descriptor"}


def test_raw_says_raw_and_holds_no_claim() -> None:
    header = veil.encode(raw_features())
    assert b'\\"content\\":\\"raw\\"' in header
    assert b"guarantee" not in header
    assert b"defense" not in header


@pytest.mark.parametrize("key", ["seed", "Seed", "rng_seed", "random_state", "rng"])
def test_a_seed_is_never_released(key: str, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="seed"):
        veil.save(private_subspaces({"name": "lifting", key: 5}), tmp_path / "a.veil")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.zeros(3), float("nan"), float("inf"), 2**70, "\x1b[31m"])
def test_only_plain_values_describe_a_defense(value: object) -> None:
    with pytest.raises(InputError, match="a defense's dimension must be"):
        veil.encode(private_subspaces({"dimension": value}))  # type: ignore[dict-item]


def test_what_cannot_be_read_back_is_not_written() -> None:
    with pytest.raises(InputError, match="infinite epsilon"):
        veil.encode(private_points(epsilon=float("inf")))
    with pytest.raises(InputError, match="do not fit"):
        veil.encode(private_subspaces({"note": "x" * 70_000}))
    with pytest.raises(InputError, match="larger than"):
        veil.encode(Features(Points(np.ones((1, 2**16 + 1), np.float32)), "sift"))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        veil.load(tmp_path / "missing.veil")
    with pytest.raises(InputError, match="is a folder"):
        veil.load(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        veil.save(raw_features(), tmp_path / "missing" / "a.veil")


def test_damage_is_reported_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "bad.veil").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"bad\.veil is not a usable \.veil file") as caught:
        veil.load(tmp_path / "bad.veil")
    assert "\n" not in str(caught.value)


def test_too_large_a_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    veil.save(raw_features(), tmp_path / "a.veil")
    monkeypatch.setattr(veil, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="more than 100 bytes"):
        veil.load(tmp_path / "a.veil")
    with pytest.raises(FormatError, match="more than 100 bytes"):
        veil.decode(bytes(101))


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_interrupted_save_leaves_the_old_file(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.veil"
    veil.save(raw_features(), path)
    before = path.read_bytes()
    write = Path.write_bytes

    def write_half(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        raise failure

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(InputError if isinstance(failure, OSError) else KeyboardInterrupt):
        veil.save(private_subspaces(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
