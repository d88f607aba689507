"""Verification, attributes, logins and protection of face templates, on synthetic people."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from face_sets import KIND, population
from featveil.cli.bench import app
from featveil.core import InputError, Points, Subspaces
from featveil.core.records import Record, read_records
from featveil.datasets.face_pairs import FacePairs
from featveil.datasets.face_sets import FaceSet, save_faces
from featveil.distances import matrix
from featveil.lab import face_attributes, face_logins, face_protection, face_verification
from featveil.lab.face_attributes import LabelledFaces
from featveil.lab.face_logins import Visitors
from featveil.lab.face_parts.face_studies import (
    FaceScheme,
    Verification,
    apart_from,
    labels_for,
    lifting_database,
    make_schemes,
    others_of,
)
from featveil.lab.face_verification import Compared
from featveil.pipelines.face_parts.face_templates import SAME_PERSON, groups_of_people, halves

PEOPLE = 80
FACES = population(PEOPLE, 4, seed=1)
OTHERS = population(1500, 1, seed=2)


def pairs_of(faces: FaceSet, photographs: int) -> FacePairs:
    """Two photographs of everyone, and of everyone and the next person, in four folds."""
    one = np.arange(0, len(faces), photographs)
    first, second = np.concatenate([one, one]), np.concatenate([one + 1, np.roll(one, -1)])
    same = np.repeat([True, False], len(one))
    return FacePairs(first, second, same, np.tile(np.arange(len(one)) % 4, 2))


PAIRS = pairs_of(FACES, 4)
STUDY = Verification("drawn", FACES, PAIRS, OTHERS, "gender")


def by_name(records: list[Record], *names: str) -> dict[tuple[str, ...], Record]:
    def of(record: Record, name: str) -> str:
        return str(getattr(record, name, None) or record.parameters.get(name))

    return {tuple(of(record, name) for name in names): record for record in records}


@pytest.mark.parametrize("strategy", ["random", "adversarial", "hybrid", "hybrid+", "balanced", "hardened"])
def test_every_strategy_hides_faces_in_subspaces_that_hold_them(strategy: str) -> None:
    scheme = FaceScheme(strategy, 4)
    database = lifting_database(OTHERS, "gender", np.random.default_rng(0))
    labels = labels_for(FACES, database, "gender")
    hidden = scheme.hide(FACES.values[:40], database, np.random.default_rng(1), None if labels is None else labels[:40])
    assert isinstance(hidden, Subspaces)
    near = matrix(hidden, Points(FACES.values[:40])).diagonal()
    assert near.max() < (0.02 if strategy == "hardened" else 1e-5)  # hardened lifting dithers what it hides
    held = (matrix(hidden, database.as_points) < (0.02 if strategy == "hardened" else 1e-5)).sum(axis=1)
    assert (held == scheme.confounders).all()


def test_no_confounder_of_hardened_templates_is_used_twice_by_one_pool() -> None:
    database = lifting_database(OTHERS.take(np.arange(100)), None, np.random.default_rng(0))
    hidden = FaceScheme("hardened", 4).hide(FACES.values[:50], database, np.random.default_rng(1))
    held = matrix(hidden, database.as_points) < 0.02
    assert held.sum(axis=0).tolist() == [1] * 100


def test_a_pool_too_small_for_one_face_is_refused() -> None:
    few = lifting_database(OTHERS.take(np.arange(3)), None, np.random.default_rng(0))
    with pytest.raises(InputError, match="8 confounders need as many other faces"):
        FaceScheme("hardened", 16).hide(FACES.values, few, np.random.default_rng(0))


class TestVerification:
    def test_raw_and_private_templates_verify_and_the_less_the_more_is_hidden(self) -> None:
        schemes = make_schemes(["random", "adversarial"], [2, 16])
        records = by_name(
            list(face_verification.BENCH.measured(face_verification.study(STUDY, schemes))), "scheme", "distance"
        )
        accuracy = {key: float(np.mean(record.value)) for key, record in records.items()}
        assert accuracy["raw", "raw"] > 0.97
        assert accuracy["random-2", "p-to-s"] > 0.95
        assert accuracy["adversarial-16", "s-to-s"] < accuracy["adversarial-2", "s-to-s"] - 0.1
        assert all(len(record.value) == 4 for record in records.values() if isinstance(record.value, tuple))
        assert records["raw", "raw"].parameters["equal_error_rate"] == pytest.approx(0.01, abs=0.02)

    def test_distances_are_those_of_templates_drawn_anew_for_each_side(self) -> None:
        twice = FacePairs(np.arange(20), np.r_[0:10, 20:30], np.r_[[True] * 10, [False] * 10], np.arange(20) % 2)
        study = replace(STUDY, pairs=twice)
        hybrid = FaceScheme("hybrid", 4)
        assert Compared(study, hybrid, "p-to-s").distances()[:10].max() < 1e-5
        assert Compared(study, hybrid, "s-to-s").distances()[:10].max() < 1e-5
        assert Compared(study, hybrid, "s-to-s").distances()[10:].min() > 0.1

    def test_people_who_are_tested_do_not_hide_anyone(self) -> None:
        with pytest.raises(InputError, match="80 of the people tested are among the faces to hide among"):
            Verification("drawn", FACES, PAIRS, FACES)
        with pytest.raises(InputError, match="everyone in these faces is tested"):
            others_of(FACES, PAIRS)
        more = FaceSet(np.concatenate([FACES.values, OTHERS.values]), (*FACES.names, *OTHERS.names), KIND)
        rest = others_of(more, PAIRS)
        assert rest.names == OTHERS.names
        within = Compared(replace(STUDY, faces=more, others=rest), FaceScheme("hybrid", 4), "p-to-s").distances()
        np.testing.assert_array_equal(within, Compared(STUDY, FaceScheme("hybrid", 4), "p-to-s").distances())

    def test_faces_of_another_network_are_refused(self) -> None:
        with pytest.raises(InputError, match="another network"):
            Verification("drawn", FACES, PAIRS, replace(OTHERS, kind="face-ffffffffffff"))

    def test_lookalikes_are_left_out(self) -> None:
        mixed = FaceSet(np.concatenate([FACES.values[:5], OTHERS.values[:5]]), tuple("abcdefghij"), KIND)
        assert apart_from(mixed, FACES).names == tuple("fghij")
        with pytest.raises(InputError, match="look like someone tested"):
            apart_from(mixed.take(np.arange(5)), FACES)


class TestAttributes:
    FACES = population(900, 1, seed=3)

    def test_groups_put_copies_and_lookalikes_together(self) -> None:
        twins = FaceSet(
            np.concatenate([self.FACES.values[:50], self.FACES.values[:50]]),
            tuple(f"file{i}" for i in range(100)),
            KIND,
        )
        groups = groups_of_people(twins)
        assert (groups[:50] == groups[50:]).all()
        away = matrix(Points(twins.values), Points(twins.values))
        assert (away[groups[:, None] != groups[None]] >= SAME_PERSON).all()
        first, second = halves(twins, np.random.default_rng(0))
        assert matrix(Points(first.values), Points(second.values)).min() >= SAME_PERSON

    def test_parts_have_nobody_in_common(self) -> None:
        faces = population(300, 3, seed=5)
        split = LabelledFaces("drawn", faces, ("gender",)).split
        people = [set(part.people) for part in (split.lifting, split.attacker, split.victims)]
        assert sum(map(len, people)) == len(set.union(*people)) == 300

    def test_every_attacker_reads_raw_faces_and_chance_reads_none(self) -> None:
        study = LabelledFaces("drawn", self.FACES, ("gender",))
        records = by_name(
            list(face_attributes.BENCH.measured(face_attributes.study(study, make_schemes(["hybrid+"], [8])))),
            "scheme",
            "attack",
        )
        share = {key: float(str(record.value)) for key, record in records.items()}
        victims = study.split.victims.attribute("gender")
        likeliest = np.bincount(study.split.attacker.attribute("gender")).argmax()
        assert share["raw", "chance"] == pytest.approx(float((victims == likeliest).mean()), abs=1e-6)
        assert min(share["raw", "knn"], share["raw", "trained"]) > 0.9
        assert ("raw", "unmix") not in share
        assert share["hybrid+-8", "trained"] > 0.75 > 0.45 > share["hybrid+-8", "knn"]
        assert share["hybrid+-8", "unmix"] > 0.75

    def test_years_become_bands(self) -> None:
        faces = FaceSet(self.FACES.values[:4], tuple("abcd"), KIND, {"age": np.array([3, 13, 39, 80])})
        assert LabelledFaces("drawn", faces, ("age",)).labels(faces, "age").tolist() == [0, 1, 2, 4]

    def test_unusable_studies_are_refused(self) -> None:
        from featveil.core import DatasetError

        with pytest.raises(DatasetError, match="no attribute 'race': there are gender"):
            LabelledFaces("drawn", self.FACES, ("race",))
        with pytest.raises(InputError, match="leave victims over"):
            LabelledFaces("drawn", self.FACES, ("gender",), (0.5, 0.5))
        with pytest.raises(InputError, match="too few for a lifting database"):
            _ = LabelledFaces("drawn", self.FACES.take(np.arange(20)), ("gender",)).split


def joined(*parts: FaceSet) -> FaceSet:
    return FaceSet(np.concatenate([part.values for part in parts]), sum((part.names for part in parts), ()), KIND)


class TestLogins:
    # Half of them have too few photographs to be victims; from these the attacker knows how photographs differ.
    STUDY = Visitors("drawn", joined(FACES, population(80, 2, seed=4)), PAIRS, OTHERS, (1, 3))

    def test_logins_add_up_unless_they_are_parallel(self) -> None:
        schemes = make_schemes(["hybrid"], [4])[1:]
        modes = ("raw", "fresh", "keyed", "parallel")
        records = by_name(
            list(face_logins.BENCH.measured(face_logins.study(self.STUDY, schemes, modes))), "mode", "logins", "attack"
        )
        away = {key: record.value[0] for key, record in records.items() if isinstance(record.value, tuple)}
        assert away["fresh", "3", "meeting"] < away["fresh", "1", "meeting"] - 0.15
        assert away["keyed", "3", "varying"] < 0.5 < away["keyed", "3", "meeting"]
        assert away["parallel", "3", "meeting"] > away["fresh", "3", "meeting"]
        assert away["parallel", "1", "meeting"] == pytest.approx(away["fresh", "1", "meeting"], abs=0.05)
        assert away["raw", "3", "meeting"] < 1e-5

    def test_a_key_verifies_the_device_and_not_the_face(self) -> None:
        """Templates of one key share their confounders, so that anyone at the device is as near as can be."""
        schemes = make_schemes(["hybrid"], [4])[1:]
        records = by_name(
            list(face_logins.BENCH.measured(face_logins.study(self.STUDY, schemes, ("raw", "keyed", "parallel")))),
            "mode",
        )
        rates = {key[0]: float(str(record.parameters["true_accept_rate"])) for key, record in records.items()}
        assert rates["keyed"] == 0
        assert rates["raw"] > 0.9
        assert rates["parallel"] > 0.8

    def test_unusable_studies_are_refused(self) -> None:
        with pytest.raises(InputError, match="nobody has the 8 photographs"):
            Visitors("drawn", FACES, PAIRS, OTHERS, (1, 7))
        with pytest.raises(InputError, match="another network"):
            Visitors("drawn", FACES, PAIRS, replace(OTHERS, kind="face-ffffffffffff"), (1,))
        everyone = Visitors("drawn", FACES, PAIRS, OTHERS, (1, 3))
        with pytest.raises(InputError, match="people with several of them"):
            list(face_logins.BENCH.measured(face_logins.study(everyone, make_schemes(["hybrid"], [4])[1:], ["fresh"])))
        with pytest.raises(InputError, match="unknown mode 'twice'"):
            face_logins.study(self.STUDY, [], ["twice"])


class TestProtection:
    def test_what_leaks_is_what_is_told(self) -> None:
        faces, others = (population(*size, seed=seed, label=0.0) for size, seed in (((80, 2), 6), ((1500, 1), 7)))
        study = Verification("drawn", faces, pairs_of(faces, 2), others)
        schemes = make_schemes(["random", "hybrid", "hardened"], [8])
        records = by_name(
            list(face_protection.BENCH.measured(face_protection.study(study, schemes))), "scheme", "measure", "attack"
        )
        found = {key: record.value for key, record in records.items() if isinstance(record.value, float)}
        assert found["raw", "renewed, same photograph", "distance"] == 1
        passes = {key[0::2]: record.value[1] for key, record in records.items() if isinstance(record.value, tuple)}
        assert passes["raw", "read"] > 0.95
        assert passes["hybrid-8", "unmix"] > passes["hybrid-8", "mean"]
        assert ("hardened-8", "unmix") not in passes
        assert found["random-8", "unlinkability", "centres"] > found["hardened-8", "unlinkability", "centres"]


class TestCommands:
    @staticmethod
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["faces", *(str(argument) for argument in arguments)])

    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Path, Path]:
        brought = {
            "first": PAIRS.first,
            "second": PAIRS.second,
            "same": PAIRS.same.astype(np.int64),
            "fold": PAIRS.fold,
        }
        save_faces(replace(joined(FACES, population(80, 2, seed=4)), pairs=brought), tmp_path / "faces.npz")
        save_faces(OTHERS, tmp_path / "others.npz")
        return tmp_path / "faces.npz", tmp_path / "others.npz"

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("verification", ("--strategies", "hybrid,balanced")),
            ("logins", ("--counts", "1,2", "--modes", "fresh,parallel")),
            ("protection", ("--strategies", "hybrid")),
        ],
    )
    def test_records_table_and_figure(
        self, name: str, options: tuple[str, ...], files: tuple[Path, Path], tmp_path: Path
    ) -> None:
        pytest.importorskip("matplotlib")
        out = tmp_path / "new" / name
        arguments = (name, files[0], "--others", files[1], "--out", out, "--dimensions", "2,4", *options)
        result = self.invoke(*arguments, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["rows"]
        written = {path.name for path in out.iterdir()}
        assert written >= {"curve.png", "records.jsonl", "table.md"}
        before = read_records(out / "records.jsonl")
        again = self.invoke(*arguments)
        assert again.exit_code == 0
        assert "hybrid" in again.stdout
        assert read_records(out / "records.jsonl") == before
        other = self.invoke(*arguments, "--seed", 1)
        assert other.exit_code != 0

    def test_attributes(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        out = tmp_path / "attributes"
        options = ("--attributes", "gender", "--strategies", "hybrid", "--dimensions", "2")
        result = self.invoke("attributes", files[1], "--out", out, *options)
        assert result.exit_code == 0, result.output
        assert "chance" in result.stdout
        assert "named right" not in (out / "table.md").read_text()
        wrong = self.invoke("attributes", files[1], "--out", out, *options, "--shares", "0.3")
        assert isinstance(wrong.exception, InputError)

    def test_users_mistakes(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        out = ("--out", tmp_path / "out")
        for arguments, expected in (
            (("verification", files[1], *out), "no pairs"),
            (("verification", tmp_path / "none.npz", *out), "there is no file"),
            (("verification", files[0], "--others", files[1], *out, "--strategies", "sub-hybrid"), "unknown strategy"),
            (("verification", files[0], "--others", files[1], *out, "--dimensions", "1"), "at least 2"),
        ):
            result = self.invoke(*arguments)
            assert expected in str(result.exception), arguments
            assert not (tmp_path / "out" / "records.jsonl").exists()
