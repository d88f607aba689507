"""Template stores: only what is private gets in, nothing that was enrolled gets lost, and nothing damaged gets out."""

import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil.stores.templates as module
from face_sets import KIND, population
from featveil.core import (
    Features,
    FormatError,
    Guarantee,
    InputError,
    Points,
    PrivacyError,
    PrivateFeatures,
    Subspaces,
    WordSets,
)
from featveil.databases import Database
from featveil.defenses import Lifting, privatize
from featveil.defenses.parallel import parallel
from featveil.distances import pair_distances
from featveil.stores import sqlite as sqlite_files
from featveil.stores.templates import Calibration, Settings, TemplateStore, Verdict, digest_of
from template_stores import (
    PEOPLE,
    D,
    M,
    content,
    edit,
    lifting,
    private,
    process,
    raw,
    settings,
    without_waiting_for_the_disk,
)

CALIBRATION = Calibration(0.01, 0.75, 1000, 50, 0.98)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_waiting_for_the_disk(monkeypatch)
    return tmp_path / "people.sqlite"


@pytest.fixture
def store(path: Path) -> TemplateStore:
    """With ann (her first photograph is row 0) and bob (row 3)."""
    store = TemplateStore.create(path, settings())
    assert store.enroll([("ann", private(0)), ("bob", private(3))]) == 2
    return store


def files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def sent(probe: Features, template: PrivateFeatures, spread: float = 0.0) -> PrivateFeatures:
    """A private probe along the directions of the template."""
    assert isinstance(template.descriptors, Subspaces)
    lifted = parallel(probe.descriptors, template.descriptors, np.random.default_rng(0), spread)
    return replace(template, descriptors=lifted)


class TestCreating:
    def test_a_new_store_is_empty_private_and_knows_its_settings(self, path: Path) -> None:
        store = TemplateStore.create(path, settings())
        assert (store.people(), store.calibration()) == ([], None)
        for opened in (store, TemplateStore(str(path))):
            assert opened.settings() == settings()
            assert opened.settings().dimension == M
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(files(path)) == ["people.sqlite"]

    def test_network_and_place_of_the_others_may_be_unknown(self, path: Path) -> None:
        wanted = Settings("face", D, lifting().spec())
        assert TemplateStore.create(path, wanted).settings() == wanted

    def test_a_store_is_never_replaced(self, store: TemplateStore, path: Path) -> None:
        before = files(path)
        with pytest.raises(InputError, match="exists: use it, or name another file"):
            TemplateStore.create(path, settings())
        assert files(path) == before

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"defense": {"name": "identity"}}, "subspaces of dimension 2 or more"),
            ({"defense": {"name": "lifting", "dimension": 1}}, "subspaces of dimension 2 or more"),
            ({"defense": {"name": "lifting", "dimension": D}}, "subspaces of dimension 2 or more, below it"),
            ({"defense": {"name": "lifting", "dimension": "4"}}, "subspaces of dimension 2 or more"),
            ({"defense": {"name": "lifting", "dimension": True}}, "subspaces of dimension 2 or more"),
            ({"defense": {"name": "lifting", "dimension": 4097}, "size": 65_536}, "at most 4096, got 4097"),
            ({"size": 65_537}, "subspaces of dimension 2 or more"),
            ({"kind": "Face!"}, "a descriptor kind is"),
        ],
    )
    def test_settings_that_hide_nothing_or_make_no_sense(self, path: Path, changes: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            TemplateStore.create(path, replace(settings(), **changes))
        assert files(path) == {}

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not exist: create it first"):
            TemplateStore.create(tmp_path / "nowhere" / "people.sqlite", settings())


class TestEnrolling:
    def test_people_come_in_the_order_of_their_enrolment(self, store: TemplateStore) -> None:
        store.enroll([("Zoë", private(6)), ("aaron", private(9))])
        assert store.people() == ["ann", "bob", "Zoë", "aaron"]

    def test_nobody(self, store: TemplateStore) -> None:
        assert store.enroll([]) == 0
        assert store.people() == ["ann", "bob"]

    def test_a_template_comes_back_bit_by_bit(self, store: TemplateStore, path: Path) -> None:
        given = private(6)
        store.enroll([("cid", given)])
        stored = TemplateStore(path).template("cid")
        assert isinstance(given.descriptors, Subspaces) and isinstance(stored.descriptors, Subspaces)
        assert stored.descriptors.offset.tobytes() == given.descriptors.offset.tobytes()
        assert stored.descriptors.basis.tobytes() == given.descriptors.basis.tobytes()
        assert (stored.kind, stored.defense, stored.guarantee) == (given.kind, given.defense, Guarantee("empirical"))
        assert (stored.keypoints, stored.image_size) == (None, None)

    def test_the_descriptor_itself_is_not_in_the_file(self, store: TemplateStore, path: Path) -> None:
        """Neither its numbers, in any width, nor any other point of the sphere of the person's photographs."""
        values = PEOPLE.values[0]
        stored = path.read_bytes()
        template = store.template("ann").descriptors
        assert isinstance(template, Subspaces)
        assert template.offset[0].tobytes() in stored  # where it would be found
        for width in ("<f4", "<f8", ">f4", "<f2"):
            for component in values[np.abs(values) > 1e-3]:
                assert component.astype(width).tobytes() * 2 not in stored
            assert values.astype(width).tobytes()[:8] not in stored

    def test_someone_enrolled_already_is_refused_with_all_that_came_with_it(
        self, store: TemplateStore, path: Path
    ) -> None:
        before = files(path)
        with pytest.raises(InputError, match="'bob' is enrolled already: revoke that template first"):
            store.enroll([("cid", private(6)), ("bob", private(4)), ("dan", private(9))])
        with pytest.raises(InputError, match="'cid' is enrolled already"):
            store.enroll([("cid", private(6)), ("cid", private(7))])
        assert files(path) == before

    def test_names_are_told_apart_to_the_letter(self, store: TemplateStore) -> None:
        others = ["Ann", "ann ", "an", "a\u0308nn", "änn", "ann'; DROP TABLE templates; --", "%", "5", "5.0", "[/x]"]
        store.enroll((name, private(6)) for name in others)
        assert store.people() == ["ann", "bob", *others]
        store.revoke("5")
        store.revoke("%")
        assert store.people() == ["ann", "bob", *(name for name in others if name not in ("5", "%"))]

    @pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "a\0", 201 * "x", "\udcff", b"ann", None, 5])
    def test_a_name_that_is_none(self, store: TemplateStore, path: Path, name: Any) -> None:
        before = files(path)
        with pytest.raises(InputError, match="a person is named by 1 to 200 printable characters"):
            store.enroll([(name, private(6))])
        assert files(path) == before
        assert store.enroll([(200 * "x", private(6))]) == 1

    def test_raw_faces_are_refused(self, store: TemplateStore, path: Path) -> None:
        before = files(path)
        with pytest.raises(PrivacyError, match="only private templates are stored: lift the descriptor first"):
            store.enroll([("cid", raw(6))])  # type: ignore[list-item]
        sham = PrivateFeatures(raw(6).descriptors, KIND, settings().defense, Guarantee("empirical"))
        with pytest.raises(InputError, match="a template is one lifted descriptor"):
            store.enroll([("cid", sham)])
        assert files(path) == before

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (lambda one: replace(one, kind="face-ffffffffffff"), r"of face-ffffffffffff \(size 24\): describe it by"),
            (lambda one: replace(one, kind="face"), "this one is of face "),
            (lambda one: replace(one, defense={**one.defense, "database": "0" * 64}), "another defense: lift with"),
            (lambda one: replace(one, defense={**one.defense, "strategy": "random"}), "another defense"),
            (lambda one: private(6, lifting(6)), "another defense"),
            (lambda one: private(6, lifting(others=PEOPLE)), "another defense"),
            (lambda one: one.take(np.array([0, 0])), "a template is one lifted descriptor, got 2"),
            (lambda one: one.take(np.array([], np.int64)), "a template is one lifted descriptor, got 0"),
            (lambda one: replace(one, descriptors=WordSets(np.array([[1, 2]]), "0" * 64, 9)), "one lifted descriptor"),
        ],
    )
    def test_templates_of_another_store(
        self, store: TemplateStore, path: Path, changed: Callable[[PrivateFeatures], PrivateFeatures], message: str
    ) -> None:
        before = files(path)
        with pytest.raises(InputError, match=message):
            store.enroll([("cid", private(6)), ("dan", changed(private(6)))])
        assert files(path) == before

    def test_templates_of_another_size(self, store: TemplateStore, path: Path) -> None:
        wide, others = population(1, 1, 32, seed=5), population(60, 1, 32, seed=6)
        defense = Lifting("hybrid", M, database=Database.from_array(others.values, KIND, 1))
        before = files(path)
        with pytest.raises(InputError, match=r"\(size 24\), this one is of face-0123456789ab \(size 32\)"):
            store.enroll([("cid", privatize(raw(0, wide), defense))])
        assert files(path) == before

    def test_what_would_be_refused_is_known_before_it_is_hidden(self, store: TemplateStore) -> None:
        store.check_new([("cid", raw(6)), ("dan", raw(9))])
        for faces, message in (
            ([("cid", raw(6)), ("ann", raw(0))], "'ann' is enrolled already"),
            ([("", raw(6))], "printable characters"),
            ([("cid", replace(raw(6), kind="face-ffffffffffff"))], "describe it by the same network"),
            ([("cid", raw(0, population(1, 1, 32)))], "size 32"),
        ):
            with pytest.raises(InputError, match=message):
                store.check_new(faces)

    def test_an_interruption_keeps_the_parts_before_it(
        self, store: TemplateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_BATCH", 2)

        def people() -> Iterator[tuple[str, PrivateFeatures]]:
            for number in range(5):
                yield f"p{number}", private(6)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.enroll(people())
        assert store.people() == ["ann", "bob", "p0", "p1", "p2", "p3"]

    def test_parts_that_end_evenly_and_not(self, store: TemplateStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_BATCH", 2)
        assert store.enroll((f"a{number}", private(6)) for number in range(4)) == 4
        assert store.enroll((f"b{number}", private(6)) for number in range(5)) == 5
        assert len(store.people()) == 11


class TestRevoking:
    def test_a_template_is_deleted_and_others_stay(self, store: TemplateStore) -> None:
        before = content(store)
        store.revoke("ann")
        assert content(store) == {"bob": before["bob"]}
        with pytest.raises(InputError, match="'ann' is not enrolled in"):
            store.template("ann")
        store.enroll([("ann", private(1))])
        assert store.people() == ["bob", "ann"]
        assert content(store)["ann"] != before["ann"]

    @pytest.mark.parametrize("secure", [True, False])
    def test_its_bytes_are_gone_from_the_file(self, path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool) -> None:
        """Both of a small template and of one that is longer than a page; with the opposite setting they stay."""
        if not secure:
            monkeypatch.setattr(sqlite_files, "_PRAGMAS", ("PRAGMA secure_delete = OFF",))
        store = TemplateStore.create(path, settings(D - 1))
        long = private(0, lifting(D - 1))
        TemplateStore.create(path.with_name("small"), settings()).enroll([("Zaphod", private(0))])
        store.enroll([("other", private(3, lifting(D - 1))), ("Zaphod", long)])
        for opened in (store, TemplateStore(path.with_name("small"))):
            stored = content(opened)["Zaphod"]
            pieces = [stored[start : start + 64] for start in range(0, len(stored), 64)]
            file = path if opened is store else path.with_name("small")
            # An end of a page may cut one of them in two.
            assert sum(piece in file.read_bytes() for piece in pieces) >= len(pieces) - 2
            assert b"Zaphod" in file.read_bytes()
            opened.revoke("Zaphod")
            gone = not any(piece in file.read_bytes() for piece in pieces) and b"Zaphod" not in file.read_bytes()
            assert gone is secure
        assert store.people() == ["other"]
        assert set(files(path)) == {"people.sqlite", "small"}

    @pytest.mark.parametrize("name", ["eve", "", "ANN", "an_", "ann\0", "\udcff", 500 * "x"])
    def test_someone_unknown(self, store: TemplateStore, path: Path, name: str) -> None:
        before = files(path)
        for act in (store.revoke, store.template, lambda person: store.verify(person, raw(0))):
            with pytest.raises(InputError, match="is not enrolled in") as caught:
                act(name)
            assert len(str(caught.value)) < 120 + len(str(path))
        assert files(path) == before


class TestComparing:
    def test_the_distance_is_that_from_the_descriptor_to_the_subspace(self, store: TemplateStore) -> None:
        template, rows = store.template("ann").descriptors, np.zeros(1, np.int64)
        assert isinstance(template, Subspaces)
        for row in (0, 1, 5):
            verdict = store.verify("ann", raw(row))
            wanted = pair_distances(raw(row).descriptors, template, rows, rows)[0]
            assert verdict == Verdict("ann", float(wanted), None)
        assert store.verify("ann", raw(0)).distance < 1e-5

    def test_a_person_is_nearer_than_strangers(self, store: TemplateStore) -> None:
        own = [store.verify("ann", raw(row)).distance for row in (1, 2)]
        others = [store.verify("ann", raw(row)).distance for row in range(3, len(PEOPLE))]
        assert max(own) < min(others)

    @pytest.mark.parametrize("row", [0, 1, 4, 20])
    def test_a_parallel_probe_is_as_far_as_the_raw_one(self, store: TemplateStore, row: int) -> None:
        for person in ("ann", "bob"):
            verdict = store.verify(person, sent(raw(row), store.template(person)))
            assert verdict.distance == pytest.approx(store.verify(person, raw(row)).distance, abs=1e-5)

    def test_a_probe_that_is_not_parallel_is_refused(self, store: TemplateStore) -> None:
        template = store.template("ann")
        wrong = (
            private(1),
            sent(raw(1), store.template("bob")),
            sent(raw(1), template, spread=0.05),
            replace(template, descriptors=private(1, lifting(6)).descriptors),
            replace(template, descriptors=private(1, lifting(2)).descriptors),
        )
        for probe in wrong:
            with pytest.raises(InputError, match="must be parallel to the template of whom it claims to be"):
                store.verify("ann", probe)
        assert store.verify("ann", sent(raw(1), template)).person == "ann"

    @pytest.mark.parametrize("angle", [1e-5, 1e-4, 5e-4])
    def test_a_direction_that_is_turned_a_little_brings_a_stranger_no_nearer(
        self, store: TemplateStore, angle: float
    ) -> None:
        """Turned towards the template, the two meet far away: their own distance would be that of the person."""
        stranger, template = raw(9), store.template("ann")
        lifted, theirs = sent(stranger, template).descriptors, template.descriptors
        assert isinstance(lifted, Subspaces) and isinstance(theirs, Subspaces)
        apart = (lifted.offset - theirs.offset)[0].astype(np.float64)
        apart -= (apart @ theirs.basis[0].T) @ theirs.basis[0]
        basis = lifted.basis.astype(np.float64)
        basis[0, 0] += angle * apart / np.linalg.norm(apart)
        turned = Subspaces(lifted.offset, basis / np.linalg.norm(basis, axis=2, keepdims=True))
        rows = np.zeros(1, np.int64)
        assert pair_distances(turned, theirs, rows, rows)[0] < 0.02
        distance = store.verify("ann", replace(template, descriptors=turned)).distance
        assert distance == pytest.approx(store.verify("ann", stranger).distance, abs=1e-5)

    def test_the_nearest_people_come_first(self, store: TemplateStore) -> None:
        store.enroll((f"p{row}", private(row)) for row in range(6, len(PEOPLE), 3))
        people, probe = store.people(), raw(1)
        away = {person: store.verify(person, probe).distance for person in people}
        verdicts = store.identify(probe, 4)
        assert [one.person for one in verdicts] == sorted(people, key=away.__getitem__)[:4]
        assert verdicts[0].person == "ann"
        for one in verdicts:
            assert one.distance == pytest.approx(away[one.person], abs=1e-5) and one.accepted is None
        assert len(store.identify(probe)) == 5
        assert len(store.identify(probe, 100)) == len(people)
        assert len(store.identify(probe, 0)) == 1

    def test_a_private_probe_is_not_identified(self, store: TemplateStore) -> None:
        """It is parallel to one template; to the others it is nearer than any raw probe, so that it would pass."""
        probe = sent(raw(30), store.template("ann"))
        theirs, rows = store.template("bob").descriptors, np.zeros(1, np.int64)
        assert isinstance(probe.descriptors, Subspaces) and isinstance(theirs, Subspaces)
        near = pair_distances(probe.descriptors, theirs, rows, rows)[0]
        assert near < store.verify("bob", raw(30)).distance - 0.2
        with pytest.raises(InputError, match="only raw probes are identified"):
            store.identify(probe)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("probe", "message"),
        [
            (replace(raw(0), kind="face-ffffffffffff"), "this one is of face-ffffffffffff"),
            (replace(raw(0), kind="face"), "this one is of face "),
            (raw(0, population(1, 1, 32)), r"\(size 24\), .* \(size 32\)"),
            (Features(Points(PEOPLE.values[:2]), KIND), "a probe is one descriptor, raw or lifted, got 2"),
            (Features(Points(PEOPLE.values[:0]), KIND), "a probe is one descriptor, raw or lifted, got 0"),
        ],
    )
    def test_probes_of_another_network_or_several(self, store: TemplateStore, probe: Features, message: str) -> None:
        for act in (lambda: store.verify("ann", probe), lambda: store.identify(probe)):
            with pytest.raises(InputError, match=message):
                act()

    def test_words_are_no_probe(self, store: TemplateStore) -> None:
        words = replace(private(0), descriptors=WordSets(np.array([[1, 2]]), "0" * 64, 9))
        with pytest.raises(InputError, match="a probe is one descriptor, raw or lifted"):
            store.verify("ann", words)

    def test_an_empty_store_knows_nobody(self, path: Path) -> None:
        empty = TemplateStore.create(path, settings())
        for act in (lambda: empty.identify(raw(0)), empty.gallery):
            with pytest.raises(InputError, match=r"nobody is enrolled in .*people\.sqlite"):
                act()
        with pytest.raises(InputError, match="'ann' is not enrolled"):
            empty.verify("ann", raw(0))

    def test_a_gallery_of_everyone(self, store: TemplateStore) -> None:
        people, gallery = store.gallery()
        assert (people, len(gallery)) == (["ann", "bob"], 2)
        nearest = gallery.nearest(Points(PEOPLE.values[[4, 1]]), 1).indices[:, 0]
        assert [people[index] for index in nearest] == ["bob", "ann"]


class TestCalibrating:
    def test_the_latest_counts(self, store: TemplateStore, path: Path) -> None:
        assert store.calibration() is None
        store.calibrate(CALIBRATION)
        assert TemplateStore(path).calibration() == CALIBRATION
        later = replace(CALIBRATION, far=0.001, threshold=0.25)
        store.calibrate(later)
        assert TemplateStore(path).calibration() == later

    def test_the_threshold_decides(self, store: TemplateStore) -> None:
        own, other = store.verify("ann", raw(1)).distance, store.verify("ann", raw(9)).distance
        assert own < other
        store.calibrate(replace(CALIBRATION, threshold=own))
        assert store.verify("ann", raw(1)).accepted is True  # as far as the threshold is near enough
        assert store.verify("ann", raw(9)).accepted is False
        accepted = {one.person: one.accepted for one in store.identify(raw(2))}
        assert set(accepted) == {"ann", "bob"} and accepted["bob"] is False
        store.calibrate(replace(CALIBRATION, threshold=other))
        assert store.verify("ann", raw(9)).accepted is True

    def test_numbers_that_are_none_are_not_stored(self, store: TemplateStore, path: Path) -> None:
        store.calibrate(CALIBRATION)
        before = files(path)
        for name in ("threshold", "far", "true_accept_rate"):
            for value in (float("nan"), float("inf"), float("-inf")):
                with pytest.raises(InputError, match="a calibration is made of finite numbers"):
                    store.calibrate(replace(CALIBRATION, **{name: value}))  # type: ignore[arg-type]
        assert files(path) == before
        assert store.calibration() == CALIBRATION


class TestDamage:
    """A store that is damaged says so, each time and in one line, and is left as it is."""

    def refused(self, path: Path, act: Callable[[TemplateStore], object], message: str = "is damaged") -> None:
        before = files(path)
        with pytest.raises(FormatError, match=message) as caught:
            act(TemplateStore(path))
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
        assert files(path) == before

    @pytest.mark.parametrize(
        "harm",
        [
            "template = zeroblob(length(template))",
            "template = substr(template, 1, length(template) - 4)",
            "template = CAST(template || x'00000000' AS BLOB)",
            "template = CAST(x'0000c07f' || substr(template, 5) AS BLOB)",
            "template = 'text'",
            "template = 5",
            "digest = zeroblob(32)",
            "digest = 'text'",
            "digest = x''",
            "person = 'Ann'",
        ],
    )
    def test_a_template(self, store: TemplateStore, path: Path, harm: str) -> None:
        edit(path, f"UPDATE templates SET {harm} WHERE person = 'ann'")
        person = store.people()[0]
        message = f"the template of '{person}' in .* is damaged: restore the store from a copy, or revoke it and enroll"
        for act in (
            lambda opened: opened.template(person),
            lambda opened: opened.verify(person, raw(0)),
            lambda opened: opened.identify(raw(0)),
        ):
            self.refused(path, act, message)
        assert store.verify("bob", raw(3)).distance < 1e-5  # of others nothing is lost
        store.revoke(person)
        store.enroll([("ann", private(0))])
        assert store.identify(raw(0))[0].person == "ann"

    def test_two_templates_that_changed_places(self, store: TemplateStore, path: Path) -> None:
        """As an attacker would who is enrolled and wants to be someone else."""
        edit(path, "UPDATE templates SET (template, digest) = (SELECT template, digest FROM templates WHERE id = 2)")
        self.refused(path, lambda opened: opened.verify("ann", raw(3)), "the template of 'ann' in .* is damaged")

    def test_a_template_that_is_none_in_spite_of_its_digest(self, store: TemplateStore, path: Path) -> None:
        for value in (np.nan, 1.0):
            blob = np.full((M + 1, D), value, np.float32).tobytes()
            digest = digest_of("ann", blob).hex()
            edit(path, f"UPDATE templates SET template = x'{blob.hex()}', digest = x'{digest}' WHERE person = 'ann'")
            self.refused(path, lambda opened: opened.verify("ann", raw(0)))

    @pytest.mark.parametrize(
        "harm",
        [
            "DELETE FROM settings",
            "INSERT INTO settings SELECT * FROM settings",
            "UPDATE settings SET kind = 'No kind!'",
            "UPDATE settings SET kind = x'00'",
            "UPDATE settings SET size = 'large'",
            "UPDATE settings SET size = 24.5",
            "UPDATE settings SET size = 1000000",
            "UPDATE settings SET size = 4",
            "UPDATE settings SET model = x'00'",
            "UPDATE settings SET among = x'00'",
            "UPDATE settings SET defense = 'text'",
            "UPDATE settings SET defense = x'00'",
            "UPDATE settings SET defense = '[4]'",
            "UPDATE settings SET defense = 'null'",
            "UPDATE settings SET defense = '{\"dimension\": 4}'",
            'UPDATE settings SET defense = \'{"name": 5, "dimension": 4}\'',
            'UPDATE settings SET defense = \'{"name": "lifting"}\'',
            'UPDATE settings SET defense = \'{"name": "lifting", "dimension": 1}\'',
            'UPDATE settings SET defense = \'{"name": "lifting", "dimension": [4]}\'',
            'UPDATE settings SET defense = \'{"name": "lifting", "dimension": 1e999}\'',
            f"UPDATE settings SET defense = '{100_000 * '['}'",
        ],
    )
    def test_settings(self, store: TemplateStore, path: Path, harm: str) -> None:
        edit(path, harm)
        for act in (
            lambda opened: opened.settings(),
            lambda opened: opened.template("ann"),
            lambda opened: opened.verify("ann", raw(0)),
            lambda opened: opened.identify(raw(0)),
            lambda opened: opened.enroll([("cid", private(6))]),
        ):
            self.refused(path, act)

    def test_a_dimension_that_is_not_that_of_the_templates(self, store: TemplateStore, path: Path) -> None:
        edit(path, "UPDATE settings SET defense = replace(defense, '\"dimension\": 4', '\"dimension\": 5')")
        assert store.settings().dimension == 5
        self.refused(path, lambda opened: opened.template("ann"), "the template of 'ann' in .* is damaged")

    @pytest.mark.parametrize("name", ["x'ff'", "CAST(x'ff' AS TEXT)"])
    def test_a_name_that_is_no_text(self, store: TemplateStore, path: Path, name: str) -> None:
        edit(path, f"UPDATE templates SET person = {name} WHERE person = 'bob'")
        for act in (
            lambda opened: opened.people(),
            lambda opened: opened.identify(raw(0)),
            lambda opened: opened.check_new([("cid", raw(6))]),
        ):
            self.refused(path, act)
        assert store.verify("ann", raw(0)).distance < 1e-5

    @pytest.mark.parametrize("value", ["'near'", "x'00'", "9e999", "-9e999"])
    def test_a_calibration(self, store: TemplateStore, path: Path, value: str) -> None:
        store.calibrate(CALIBRATION)
        edit(path, f"UPDATE calibrations SET threshold = {value}")
        for act in (
            lambda opened: opened.calibration(),
            lambda opened: opened.verify("ann", raw(0)),
            lambda opened: opened.identify(raw(0)),
        ):
            self.refused(path, act)
        store.calibrate(CALIBRATION)
        assert store.verify("ann", raw(0)).accepted is True


class TestProcesses:
    def test_two_enroll_at_once_and_nobody_is_lost(self, store: TemplateStore, path: Path) -> None:
        """Some people in both: each is enrolled by one of them."""
        code = """
for number in range(12):
    person = f"{'both' if number % 3 == 0 else os.getpid()} {number}"
    try:
        store.enroll([(person, template(number))])
        print(person)
    except InputError as error:
        assert "is enrolled already" in str(error)
"""
        running = [process(code, path) for _ in range(2)]
        said = [each.communicate() for each in running]
        assert [each.returncode for each in running] == [0, 0], said
        enrolled = [line for out, _ in said for line in out.splitlines()]
        assert len(enrolled) == len(set(enrolled)) == 8 + 8 + 4
        assert store.people()[:2] == ["ann", "bob"] and sorted(store.people()[2:]) == sorted(enrolled)
        assert len(content(store)) == 22

    def test_a_writer_that_is_killed_between_parts(self, store: TemplateStore, path: Path) -> None:
        before = content(store)
        code = """
module._BATCH = 2

def people():
    for number in range(5):
        yield f"p{number}", template(number)
    os.kill(os.getpid(), signal.SIGKILL)

store.enroll(people())
"""
        killed = process(code, path)
        killed.communicate()
        assert killed.returncode == -9
        after = content(store)
        assert list(after) == ["ann", "bob", "p0", "p1", "p2", "p3"]
        assert {person: after[person] for person in before} == before

    def test_a_writer_that_is_killed_within_a_part(self, store: TemplateStore, path: Path) -> None:
        before = content(store)
        code = """
from featveil.stores import sqlite
sqlite._PRAGMAS += ("PRAGMA cache_size = 2",)  # so that pages are written before the commit
store.enroll([("cid", template(0))])
digest, calls = module.digest_of, 0

def stop(person, blob):
    global calls
    calls += 1
    if calls == 60:
        os.kill(os.getpid(), signal.SIGKILL)
    return digest(person, blob)

module.digest_of = stop
store.enroll((f"p{number}", template(number)) for number in range(100))
"""
        size = path.stat().st_size
        killed = process(code, path)
        killed.communicate()
        assert killed.returncode == -9
        assert path.with_name("people.sqlite-journal").exists() and path.stat().st_size > size + 20_000
        after = content(store)
        assert list(after) == ["ann", "bob", "cid"]
        assert {person: after[person] for person in before} == before
        store.enroll([("p0", private(6))])
        assert list(files(path)) == ["people.sqlite"]
        assert store.identify(raw(0))[0].person == "ann"

    def test_one_reads_while_another_writes(self, store: TemplateStore, path: Path) -> None:
        code = """
with store._storage.transaction() as connection:
    connection.execute("DELETE FROM templates")
    print("deleting", flush=True)
    sys.stdin.read()
    raise KeyboardInterrupt
"""
        with process(code, path) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "deleting\n"
            assert store.identify(raw(0))[0].person == "ann"
            with pytest.raises(InputError, match="another process holds template store"):
                TemplateStore(path, wait=0).enroll([("cid", private(6))])
            writer.communicate("")
        assert store.people() == ["ann", "bob"]
