"""What the face commands do, on synthetic people: descriptors, templates, private probes and thresholds."""

import pickle
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from face_sets import KIND, population
from featveil.core import DatasetError, Features, FormatError, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32
from featveil.databases import save_database
from featveil.datasets.face_pairs import FacePairs, pairs_within
from featveil.datasets.face_sets import FaceSet, load_faces, save_faces
from featveil.defenses import Hardened, Lifting, privatize
from featveil.distances import pair_distances
from featveil.extractors.face_networks import Crops
from featveil.pipelines.face_parts import face_templates as module
from featveil.pipelines.face_parts.face_templates import (
    defense_of,
    describe_bin,
    describe_photographs,
    find_threshold,
    load_others,
    parallel_probe,
    templates,
)
from featveil.stores.pool import Pool
from featveil.stores.templates import Settings
from template_stores import OTHERS, PEOPLE, D, M, lifting, private, raw

MANY = population(30, 3, D, seed=3, scatter=0.3, label=0.0)


class Colours:
    """Stands in for a network: the mean colour of each aligned face."""

    digest, size, kind = "1" * 64, 3, "face-111111111111"

    def describe(self, image: object, faces: object) -> Float32:
        raise AssertionError("these tests have no faces in pictures")

    def describe_crops(self, crops: Crops) -> Float32:
        self.most = max(len(crops), getattr(self, "most", 0))
        return np.array([crop.mean(axis=(0, 1)) + 1 for crop in crops], np.float32)


@pytest.fixture
def others(tmp_path: Path) -> Path:
    save_faces(OTHERS, tmp_path / "others.npz")
    return tmp_path / "others.npz"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    Pool.create(tmp_path / "device.pool", KIND, OTHERS.values[:, None])
    return tmp_path / "device.pool"


def of_lifting(others: Path, strategy: str = "hybrid", attribute: str | None = None) -> Settings:
    made = Lifting(strategy, M, database=load_others(others, KIND, attribute))
    return Settings(KIND, D, made.spec(), None, str(others))


def of_pool(confounders: int = 2) -> Settings:
    return Settings(KIND, D, Hardened(confounders, M).spec())


class TestDescribing:
    @pytest.fixture
    def pictures(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
        """Pictures whose file says how many faces they show; "broken" ones cannot be read."""

        def found(path: Path, network: Colours, which: str) -> Features:
            if path.name == "broken":
                raise InputError("no image that can be read")
            count = int(path.name)
            if which == "one" and count != 1:
                raise InputError(f"{count} faces were found")
            rows = np.eye(3, dtype=np.float32)[: count if which == "all" else 1]
            return Features(Points(rows.reshape(-1, 3)), network.kind)

        monkeypatch.setattr(module, "faces_of", found)
        return {"ann/1.jpg": Path("1"), "two.jpg": Path("2"), "none.jpg": Path("0"), "x.jpg": Path("broken")}

    def test_one_face_of_each_and_the_others_are_left_out(self, pictures: dict[str, Path]) -> None:
        seen: list[tuple[int, int]] = []
        made, left_out = describe_photographs(pictures, Colours(), "one", lambda *done: seen.append(done))
        assert (made.names, made.kind, made.model) == (("ann/1.jpg",), Colours.kind, Colours.digest)
        assert [(one.name, one.reason) for one in left_out] == [
            ("two.jpg", "2 faces were found"),
            ("none.jpg", "0 faces were found"),
            ("x.jpg", "no image that can be read"),
        ]
        assert seen[-1] == (4, 4) and [done for done, _ in seen] == [0, 1, 2, 3, 4]

    def test_all_faces_are_numbered(self, pictures: dict[str, Path]) -> None:
        made, left_out = describe_photographs(pictures, Colours(), "all")
        assert made.names == ("ann/1.jpg#1", "two.jpg#1", "two.jpg#2")
        assert [one.name for one in left_out] == ["none.jpg", "x.jpg"]
        assert made.values.argmax(axis=1).tolist() == [0, 0, 1]

    @pytest.mark.parametrize("which", ["one", "all"])
    def test_none_at_all(self, pictures: dict[str, Path], which: str) -> None:
        none = {"none.jpg": pictures["none.jpg"], "x.jpg": pictures["x.jpg"]}
        with pytest.raises(InputError, match=r"no face was described; none\.jpg: .*face"):
            describe_photographs(none, Colours(), which)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"no face was described$"):
            describe_photographs({}, Colours(), which)  # type: ignore[arg-type]


class TestBins:
    def write(self, path: Path, same: list[bool], side: int = 112) -> list[int]:
        shades = list(range(10, 10 + 2 * len(same)))
        pictures = [cv2.imencode(".png", np.full((side, side, 3), shade, np.uint8))[1].tobytes() for shade in shades]
        path.write_bytes(pickle.dumps((pictures, same)))
        return shades

    def test_descriptors_and_pairs(self, tmp_path: Path) -> None:
        same = [number % 3 == 0 for number in range(40)]
        shades = self.write(tmp_path / "lfw.bin", same)
        seen: list[tuple[int, int]] = []
        network = Colours()
        made = describe_bin(tmp_path / "lfw.bin", network, lambda *done: seen.append(done))
        assert (len(made), made.kind, made.model, network.most) == (80, Colours.kind, Colours.digest, 64)
        assert made.names[:2] == ("lfw-000000", "lfw-000001") and seen == [(64, 80), (80, 80)]
        grey = np.array([[shade + 1] * 3 for shade in shades], np.float32)
        assert np.abs(made.values - grey / np.linalg.norm(grey, axis=1, keepdims=True)).max() < 1e-6
        save_faces(made, tmp_path / "lfw.npz")
        pairs = pairs_within(load_faces(tmp_path / "lfw.npz"))
        assert pairs.first.tolist() == list(range(0, 80, 2)) and pairs.second.tolist() == list(range(1, 80, 2))
        assert pairs.same.tolist() == same and np.bincount(pairs.fold).tolist() == [4] * 10

    def test_pictures_of_another_size_or_none(self, tmp_path: Path) -> None:
        self.write(tmp_path / "small.bin", [True, False], side=96)
        with pytest.raises(FormatError, match="entry 0 is a picture of 96 x 96 pixels"):
            describe_bin(tmp_path / "small.bin", Colours())
        (tmp_path / "no.bin").write_bytes(pickle.dumps(([b"a", b"b", b"c", b"d"], [True, False])))
        with pytest.raises(FormatError, match="entry 0 is no picture"):
            describe_bin(tmp_path / "no.bin", Colours())

    def test_pairs_of_one_sort(self, tmp_path: Path) -> None:
        self.write(tmp_path / "same.bin", [True, True])
        with pytest.raises(InputError, match="must hold both some of one person and some of two"):
            describe_bin(tmp_path / "same.bin", Colours())


class TestOthers:
    def test_the_same_file_has_the_same_digest(self, others: Path) -> None:
        one, again = (load_others(others, KIND) for _ in range(2))
        assert (one.digest, one.kind, one.size, len(one), one.labels) == (again.digest, KIND, D, 60, None)
        ordered, wanted = (rows[np.argsort(rows[:, 0])] for rows in (one.points(), OTHERS.values))
        assert np.abs(ordered - wanted).max() < 1e-6
        assert load_others(others, "face").digest != one.digest

    def test_labels_go_with_their_faces(self, others: Path) -> None:
        labelled = load_others(others, KIND, "gender")
        assert labelled.labels is not None
        rows = [int(np.argmin(np.abs(OTHERS.values - row).sum(axis=1))) for row in labelled.points()]
        assert (labelled.labels == OTHERS.attribute("gender")[rows]).all()
        with pytest.raises(DatasetError, match="no attribute 'age': there are gender"):
            load_others(others, KIND, "age")

    def test_plain_arrays_and_databases(self, others: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "others.npy", OTHERS.values)
        assert load_others(tmp_path / "others.npy", KIND).digest == load_others(others, KIND).digest
        save_database(load_others(others, KIND), tmp_path / "others.safetensors")
        assert load_others(tmp_path / "others.safetensors", "any").digest == load_others(others, KIND).digest


class TestDefenses:
    @pytest.mark.parametrize(("strategy", "attribute"), [("hybrid", None), ("balanced", "gender")])
    def test_that_of_a_store_is_made_again(self, others: Path, strategy: str, attribute: str | None) -> None:
        wanted = of_lifting(others, strategy, attribute)
        made = defense_of(wanted, others, attribute)
        assert isinstance(made, Lifting) and made.spec() == wanted.defense and made.database is not None

    def test_a_pool(self, pool: Path) -> None:
        made = defense_of(of_pool(), pool)
        assert isinstance(made, Hardened) and made.spec() == of_pool().defense

    def test_other_faces_are_refused(self, others: Path, tmp_path: Path) -> None:
        save_faces(replace(OTHERS, values=OTHERS.values[::-1]), tmp_path / "turned.npz")
        save_faces(PEOPLE, tmp_path / "people.npz")
        for path, attribute in ((tmp_path / "turned.npz", None), (tmp_path / "people.npz", None), (others, "gender")):
            with pytest.raises(InputError, match=r"does not hold the faces .* give those, with the same --attribute"):
                defense_of(of_lifting(others), path, attribute)

    def test_another_network(self, others: Path, pool: Path, tmp_path: Path) -> None:
        save_faces(replace(OTHERS, model="a" * 64), tmp_path / "named.npz")
        with pytest.raises(InputError, match="use a face-0123456789ab database"):
            defense_of(of_lifting(others), tmp_path / "named.npz")
        with pytest.raises(InputError, match="use a face pool"):
            defense_of(replace(of_pool(), kind="face"), pool)

    @pytest.mark.parametrize(
        "spec",
        [
            {"name": "hardened", "dimension": 4},
            {"name": "hardened", "dimension": 4, "confounders": "two"},
            {"name": "hardened", "dimension": 4, "confounders": 5},
            {"name": "lifting", "dimension": 4},
            {"name": "lifting", "dimension": 4, "strategy": ["hybrid"]},
            {"name": "identity", "dimension": 4},
        ],
    )
    def test_settings_that_no_store_has(self, others: Path, pool: Path, spec: dict[str, object]) -> None:
        among = pool if spec["name"] == "hardened" else others
        with pytest.raises(InputError, match=r"confounders|lifting strategy"):
            defense_of(Settings(KIND, D, spec), among)  # type: ignore[arg-type]


class TestTemplates:
    def test_each_person_gets_one(self, others: Path) -> None:
        made = dict(templates([("ann", raw(0)), ("bob", raw(3))], defense_of(of_lifting(others), others)))
        assert list(made) == ["ann", "bob"]
        rows = np.zeros(1, np.int64)
        for person, row in (("ann", 0), ("bob", 3)):
            hidden = made[person].descriptors
            assert isinstance(hidden, Subspaces) and made[person].defense == of_lifting(others).defense
            assert pair_distances(raw(row).descriptors, hidden, rows, rows)[0] < 1e-5
            assert pair_distances(raw(row + 1).descriptors, hidden, rows, rows)[0] > 0.01

    def test_they_are_drawn_anew_unless_a_pool_remembers(self, others: Path, pool: Path) -> None:
        for settings, among in ((of_lifting(others), others), (of_pool(), pool)):
            defense = defense_of(settings, among)
            one, again = (next(iter(templates([("ann", raw(0))], defense)))[1].descriptors for _ in range(2))
            assert isinstance(one, Subspaces) and isinstance(again, Subspaces)
            assert (one.basis == again.basis).all() == (among == pool)
        assert Pool(pool).holdings().free == 60 - 2

    def test_labels_are_those_of_similar_faces(self, others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody has to say them, and they decide which confounders are drawn."""
        given: list[object] = []
        real = privatize

        def watched(features: Features, defense: Lifting) -> PrivateFeatures:
            given.append(features.labels)
            return real(features, defense)

        monkeypatch.setattr(module, "privatize", watched)
        faces = population(40, 1, D, seed=7, label=1.5)
        save_faces(population(60, 1, D, seed=1, label=1.5), others)
        everyone = [(name, raw(row, faces)) for row, name in enumerate(faces.names)]
        list(templates(everyone, defense_of(of_lifting(others, "balanced", "gender"), others, "gender")))
        guessed = np.array([int(labels[0]) for labels in given])  # type: ignore[index]
        assert (guessed == faces.attribute("gender")).mean() > 0.9
        given.clear()
        list(templates(everyone[:1], defense_of(of_lifting(others), others)))
        assert given == [None]

    def test_balanced_without_labels(self) -> None:
        with pytest.raises(InputError, match="balanced needs faces with labels to hide among"):
            next(templates([("ann", raw(0))], lifting(strategy="balanced")))

    @pytest.mark.parametrize("rows", [[], [0, 1]])
    def test_one_face_a_person(self, rows: list[int]) -> None:
        several = Features(Points(PEOPLE.values[rows]), KIND)
        with pytest.raises(InputError, match=f"'ann' is enrolled with one face, got {len(rows)}"):
            next(templates([("ann", several)], lifting()))


class TestParallelProbes:
    def test_it_is_along_the_template_and_drawn_anew(self) -> None:
        template = private(0)
        made = [parallel_probe(raw(1), template) for _ in range(2)]
        rows, hidden = np.zeros(1, np.int64), template.descriptors
        assert isinstance(hidden, Subspaces)
        wanted = pair_distances(raw(1).descriptors, hidden, rows, rows)[0]
        for one in made:
            assert isinstance(one.descriptors, Subspaces)
            assert (one.kind, one.defense, one.guarantee) == (template.kind, template.defense, template.guarantee)
            assert pair_distances(one.descriptors, hidden, rows, rows)[0] == pytest.approx(wanted, abs=1e-5)
            assert pair_distances(raw(1).descriptors, one.descriptors, rows, rows)[0] < 1e-5
        assert (made[0].descriptors.offset != made[1].descriptors.offset).all()  # type: ignore[union-attr]

    def test_what_does_not_fit(self) -> None:
        with pytest.raises(InputError, match="the template is of face-0123456789ab, the probe of face-f"):
            parallel_probe(replace(raw(1), kind="face-ffffffffffff"), private(0))
        with pytest.raises(InputError, match="1 descriptors of size 32 cannot be lifted"):
            parallel_probe(raw(0, population(1, 1, 32)), private(0))
        with pytest.raises(InputError, match="2 descriptors of size 24 cannot be lifted along 1"):
            parallel_probe(Features(Points(PEOPLE.values[:2]), KIND), private(0))
        with pytest.raises(InputError, match="a template is a subspace"):
            parallel_probe(raw(1), replace(private(0), descriptors=raw(0).descriptors))


class TestCalibrating:
    def some_pairs(self, faces: FaceSet, both: bool = True) -> FacePairs:
        """Two of each person's photographs, and one of each person with the next person's."""
        first = np.arange(0, len(faces), 3)
        second = np.concatenate([first + 1, np.roll(first, -1) if both else first + 2])
        same = np.repeat([True, False], len(first))
        return FacePairs(np.tile(first, 2), second, same, np.zeros(len(same), np.int64))

    def test_the_threshold_keeps_strangers_out_and_people_in(self, others: Path) -> None:
        settings = of_lifting(others)
        found = find_threshold(MANY, None, settings, others, 0.01)
        assert (found.far, found.strangers, found.mated) == (0.01, 90 * 87, 90 * 2)
        # Faces and lifts that it has not seen: some error of the estimate is to be expected, not much.
        fresh = population(30, 3, D, seed=4, scatter=0.3, label=0.0)
        hidden = defense_of(settings, others).privatize(Points(fresh.values), np.random.default_rng(0))
        assert isinstance(hidden, Subspaces)
        row, column = np.nonzero(~np.eye(90, dtype=np.bool_))
        away = pair_distances(Points(fresh.values), hidden, row, column)
        same = fresh.people[row] == fresh.people[column]
        assert 0.002 < (away[~same] <= found.threshold).mean() < 0.03
        assert abs((away[same] <= found.threshold).mean() - found.true_accept_rate) < 0.05
        assert found.true_accept_rate > 0.9

    def test_a_lower_rate_is_a_stricter_threshold(self, others: Path) -> None:
        strict, loose = (find_threshold(MANY, None, of_lifting(others), others, far) for far in (0.001, 0.1))
        assert strict.threshold < loose.threshold
        assert strict.true_accept_rate <= loose.true_accept_rate

    def test_hardly_any_strangers_pass_the_strictest(self, others: Path) -> None:
        """Exactly at the rate: as many pairs as one over it are enough, one fewer is not."""
        few = MANY.take(np.array([0, 1, 3, 4, 6, 7]))  # 24 pairs of strangers
        assert find_threshold(few, None, of_lifting(others), others, 1 / 24).strangers == 24
        with pytest.raises(InputError, match=r"a FAR of 0\.04 is seen on 25 pairs of strangers or more, there are 24"):
            find_threshold(few, None, of_lifting(others), others, 0.04)

    @pytest.mark.parametrize("far", [0.0, 1.0, -0.1, 1.5, float("nan"), float("inf")])
    def test_a_rate_that_is_none(self, others: Path, far: float) -> None:
        with pytest.raises(InputError, match="a false accept rate is between 0 and 1"):
            find_threshold(MANY, None, of_lifting(others), others, far)

    def test_pairs_of_a_list(self, others: Path) -> None:
        found = find_threshold(MANY, self.some_pairs(MANY), of_lifting(others), others, 0.1)
        assert (found.strangers, found.mated) == (30, 30)
        assert 0.2 < found.threshold < 1.5
        with pytest.raises(InputError, match="seen on 100 pairs of strangers or more, there are 30"):
            find_threshold(MANY, self.some_pairs(MANY), of_lifting(others), others, 0.01)

    def test_a_pool_is_not_touched(self, pool: Path, tmp_path: Path) -> None:
        """It need not even be there: half of the people hide the other half."""
        before = pool.read_bytes()
        found = find_threshold(MANY, None, of_pool(), pool, 0.01)
        assert pool.read_bytes() == before
        assert 30 <= found.mated <= 150 and 0.2 < found.threshold < 1.5
        assert find_threshold(MANY, None, of_pool(), tmp_path / "nowhere.pool", 0.05).true_accept_rate > 0.9

    def test_pairs_of_a_list_with_a_pool_are_those_within_the_half(self, pool: Path) -> None:
        found = find_threshold(MANY, self.some_pairs(MANY), of_pool(), pool, 0.5)
        assert 10 <= found.mated <= 20 and 2 <= found.strangers <= 15

    def test_attributes_that_are_balanced(self, others: Path) -> None:
        settings = of_lifting(others, "balanced", "gender")
        faces = population(20, 3, D, seed=3, scatter=0.3)
        assert find_threshold(faces, None, settings, others, 0.05, "gender").mated == 120
        with pytest.raises(InputError, match="with the same --attribute"):
            find_threshold(faces, None, settings, others, 0.05)

    def test_photographs_that_are_there_twice(self, others: Path) -> None:
        """No threshold accepts few strangers who have the same descriptor; none is stored then."""
        same = FaceSet(np.tile(MANY.values[:1], (40, 1)), MANY.names[:40], KIND)
        with pytest.raises(InputError, match="strangers are as near as can be: are photographs there twice"):
            find_threshold(same, None, of_lifting(others), others, 0.01)

    def test_faces_that_others_are_hidden_among(self, others: Path) -> None:
        """They lie in the subspaces themselves, 2 of 60 in each: those are no strangers to find a threshold on."""
        mates = replace(OTHERS, names=tuple(f"P{row // 2}_{row % 2:04d}" for row in range(60)))
        with pytest.raises(InputError, match="or are these the faces that others are hidden among"):
            find_threshold(mates, None, of_lifting(others), others, 0.01)
        assert find_threshold(mates, None, of_lifting(others), others, 0.2).threshold > 0.1

    @pytest.mark.parametrize("rows", [[0, 1, 2], [0, 3, 6], [0]])
    def test_people_with_several_photographs_are_needed(self, others: Path, rows: list[int]) -> None:
        with pytest.raises(InputError, match="a threshold is found on people with several photographs"):
            find_threshold(MANY.take(np.array(rows)), None, of_lifting(others), others, 0.5)

    def test_faces_of_another_network(self, others: Path) -> None:
        for faces in (replace(MANY, kind="face-ffffffffffff"), population(5, 3, 32)):
            with pytest.raises(InputError, match="the store is for face-0123456789ab of size 24, these faces are"):
                find_threshold(faces, None, of_lifting(others), others, 0.1)

    def test_of_very_many_photographs_some_are_compared(self, others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_MOST_PHOTOGRAPHS", 45)
        found = find_threshold(MANY, None, of_lifting(others), others, 0.1)
        assert found.strangers + found.mated == 45 * 44
