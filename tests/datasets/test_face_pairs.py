"""Lists of pairs of faces: LFW's, plain ones, and those that are damaged or could mean several things."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import DatasetError, InputError
from featveil.core.arrays import Integers
from featveil.datasets import face_pairs as module
from featveil.datasets.face_pairs import FOLDS, FacePairs, load_pairs, pairs_within
from featveil.datasets.face_sets import FaceSet, load_faces

LFW_NAMES = ("Abel_0001", "Abel_0002", "Abel_0012", "Bea_Lee_0001", "Bea_Lee_0002", "Cy_0001")
LISTED = "Abel_0001 Abel_0002 1\nAbel_0001 Cy_0001 0\n"


def face_set(*names: str) -> FaceSet:
    return FaceSet(np.eye(len(names), len(names) + 1, dtype=np.float32), names, "face")


@pytest.fixture
def faces() -> FaceSet:
    return face_set(*LFW_NAMES)


def listed(folder: Path, text: str) -> Path:
    path = folder / "pairs.txt"
    path.write_text(text, "utf-8")
    return path


def plain(pairs: FacePairs) -> list[tuple[int, int, bool, int]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.same.tolist(), pairs.fold.tolist(), strict=True))


LFW = """2\t2
Abel\t1\t2
Abel\t1\t12
Abel\t1\tCy\t1
Bea_Lee\t2\tAbel\t2
Bea_Lee\t1\t2
Abel\t2\t12
Cy\t1\tBea_Lee\t1
Cy\t1\tAbel\t12
"""


def test_lfw_with_folds(tmp_path: Path, faces: FaceSet) -> None:
    found = load_pairs(listed(tmp_path, LFW), faces)
    assert len(found) == 8
    assert plain(found) == [
        (0, 1, True, 0),
        (0, 2, True, 0),
        (0, 5, False, 0),
        (4, 1, False, 0),
        (3, 4, True, 1),
        (1, 2, True, 1),
        (5, 3, False, 1),
        (5, 2, False, 1),
    ]
    assert found.people(faces) == {"Abel", "Bea_Lee", "Cy"}
    assert [str(one.dtype) for one in (found.same, found.first, found.fold)] == ["bool", "int64", "int64"]


@pytest.mark.parametrize("head", ["4", "1 4"])
def test_lfw_with_a_header_of_one_number_has_no_folds_of_its_own(tmp_path: Path, faces: FaceSet, head: str) -> None:
    found = load_pairs(listed(tmp_path, LFW.replace("2\t2", head, 1)), faces)
    with_folds = load_pairs(listed(tmp_path, LFW), faces)
    assert [pair[:3] for pair in plain(found)] == [pair[:3] for pair in plain(with_folds)]
    assert found.fold.tolist() == [0, 2, 0, 2, 5, 7, 5, 7]


def test_comments_blank_lines_commas_and_other_systems(tmp_path: Path, faces: FaceSet) -> None:
    text = "\ufeff# ours\r\n\r\nAbel_0001,Abel_0002,1,3  # twins\r\n  Abel_0001 ,Cy_0001, 0\t4\r\n"
    assert plain(load_pairs(listed(tmp_path, text), faces)) == [(0, 1, True, 3), (0, 5, False, 4)]
    assert plain(load_pairs(listed(tmp_path, "# LFW\n\n" + LFW.replace("\t", ",")), faces))[0] == (0, 1, True, 0)


def test_a_list_with_folds_keeps_its_order(tmp_path: Path, faces: FaceSet) -> None:
    text = "Cy_0001 Abel_0001 0 7\nAbel_0001 Abel_0002 1 7\nBea_Lee_0001 Bea_Lee_0002 1 0\n"
    assert plain(load_pairs(listed(tmp_path, text), faces)) == [(5, 0, False, 7), (0, 1, True, 7), (3, 4, True, 0)]


@settings(max_examples=40, deadline=None)
@given(st.integers(FOLDS, 60), st.integers(FOLDS, 60), st.integers(0, 10**6))
def test_folds_that_are_dealt_out_hold_both_sorts(
    tmp_path_factory: pytest.TempPathFactory, same: int, other: int, seed: int
) -> None:
    """As different in number as they may be, and in any order."""
    faces = face_set(*(f"a{place}" for place in range(same + other)))
    order = np.random.default_rng(seed).permutation(same + other)
    text = "\n".join(f"a{place} a0 {int(place < same)}" for place in order)
    found = load_pairs(listed(tmp_path_factory.mktemp("dealt"), text), faces)
    assert found.first.tolist() == order.tolist()
    assert (found.same == (order < same)).all()
    for sort in (True, False):
        folds = found.fold[found.same == sort].tolist()
        sizes = Counter(folds)
        assert folds == sorted(folds)  # neighbours stay together
        assert sorted(sizes) == list(range(FOLDS)) and max(sizes.values()) - min(sizes.values()) <= 1


def test_few_pairs_are_dealt_out_as_far_as_they_go(tmp_path: Path, faces: FaceSet) -> None:
    assert load_pairs(listed(tmp_path, LISTED), faces).fold.tolist() == [0, 0]
    assert load_pairs(listed(tmp_path, 2 * LISTED), faces).fold.tolist() == [0, 0, 5, 5]


@pytest.mark.parametrize(
    ("called", "row"),
    [
        ("lfw/Abel/Abel_0001.jpg", 0),
        ("lfw/Abel/Abel_0001", 0),
        ("lfw/Abel/Abel_0001.png", 0),
        ("Abel_0001", 0),
        ("Abel_0001.jpg", 0),
        ("x/1.jpg", 1),
        ("x/1", 1),
        ("y/1.jpg", 2),
        ("y/1.png", 3),
        ("1", 4),
        ("J.Lo_0001", 5),
        ("J.Lo_0001.jpg", 5),
        ("only.jpg", 6),
        ("only", 6),
    ],
)
def test_names_with_or_without_folder_and_suffix(tmp_path: Path, called: str, row: int) -> None:
    faces = face_set("lfw/Abel/Abel_0001.jpg", "x/1.jpg", "y/1.jpg", "y/1.png", "1", "J.Lo_0001", "z/only.jpg", "end")
    found = load_pairs(listed(tmp_path, f"{called} end 0 0\nend end 1 0\n"), faces)
    assert found.first.tolist() == [row, 7]


@pytest.mark.parametrize("called", ["1", "1.jpg", "y/1", "y/1.bmp"])
def test_names_that_several_photographs_have_are_refused(tmp_path: Path, called: str) -> None:
    faces = face_set("x/1.jpg", "y/1.jpg", "y/1.png", "end")
    with pytest.raises(DatasetError, match=f"names '{called}', which may be any of several faces"):
        load_pairs(listed(tmp_path, f"{called} end 0\nend end 1\n"), faces)


@pytest.mark.parametrize(
    "called",
    ["Abel_0003", "abel_0001", "J.Bond_0001", "J", "z/1.jpg", ".", "..", "/", "x", ".jpg", "-", "Abel_0001.txt"],
)
def test_unknown_names_are_refused_not_guessed(tmp_path: Path, called: str) -> None:
    faces = face_set("Abel_0001", "J.Lo_0001", "x/1.jpg", "end")
    with pytest.raises(DatasetError, match="which is not among the 4 faces"):
        load_pairs(listed(tmp_path, f"{called} end 0\nend end 1\n"), faces)


def test_a_long_unknown_name_is_cut_in_the_message(tmp_path: Path, faces: FaceSet) -> None:
    with pytest.raises(DatasetError) as caught:
        load_pairs(listed(tmp_path, LISTED + "a" * 10**5 + " Cy_0001 0\n"), faces)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("3 2", "announces 3 folds of twice 2 pairs and has 8"),
        ("2 3", "announces 2 folds of twice 3 pairs and has 8"),
        ("8", "announces 1 folds of twice 8 pairs and has 8"),
        ("0 2", "announces 0 folds"),
        ("2 0", "announces 2 folds of twice 0"),
        ("999999999 999999999", "announces"),
        ("-2 2", "is no pair"),
        ("2 2 2", "is no pair"),
        ("²", "is no pair"),
        ("1" * 5000, "is no pair"),
        ("2.0 2", "is no pair"),
    ],
)
def test_damaged_headers(tmp_path: Path, faces: FaceSet, head: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_pairs(listed(tmp_path, LFW.replace("2\t2", head, 1)), faces)


@pytest.mark.parametrize(
    "line", ["Abel 1", "Abel 1 2 3 4", "Abel one 2", "Abel 1 2.5", "Abel 1 Cy x", "Abel", "Abel 1 " + "9" * 5000]
)
def test_damaged_lines_of_lfw(tmp_path: Path, faces: FaceSet, line: str) -> None:
    with pytest.raises(DatasetError, match=r"line 3 of .*pairs\.txt is no pair of LFW's"):
        load_pairs(listed(tmp_path, LFW.replace("Abel\t1\t12", line, 1)), faces)


@pytest.mark.parametrize(
    "line",
    [
        "Abel_0001 Abel_0002",
        "Abel_0001 Abel_0002 2",
        "Abel_0001 Abel_0002 true",
        "Abel_0001 Abel_0002 1 -1",
        "Abel_0001 Abel_0002 1 2.0",
        "Abel_0001 Abel_0002 1 ²",
        "Abel_0001 Abel_0002 1 2 3",
        "Abel_0001 Abel_0002 1 1" + "0" * 30,
        "Abel_0001 Abel_0002 1 " + "1" * 5000,
        "10 300",
    ],
)
def test_damaged_lines_of_a_list(tmp_path: Path, faces: FaceSet, line: str) -> None:
    with pytest.raises(DatasetError, match="is no pair: expected two photographs, 0 or 1"):
        load_pairs(listed(tmp_path, f"{LISTED}{line}\n"), faces)


def test_folds_of_some_pairs_only(tmp_path: Path, faces: FaceSet) -> None:
    with pytest.raises(DatasetError, match="folds of some pairs only"):
        load_pairs(listed(tmp_path, LISTED + "Abel_0001 Cy_0001 0 3\n"), faces)


@pytest.mark.parametrize("sort", ["0", "1"])
def test_pairs_of_one_sort(tmp_path: Path, faces: FaceSet, sort: str) -> None:
    text = f"Abel_0001 Abel_0002 {sort}\nAbel_0001 Cy_0001 {sort}\n"
    with pytest.raises(DatasetError, match="both some of one person and some of two"):
        load_pairs(listed(tmp_path, text), faces)


def test_files_that_are_no_list(tmp_path: Path, faces: FaceSet, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pairs.txt"
    for text in ("", "\n\n", "# only a comment\n", ",,,\n"):
        with pytest.raises(DatasetError, match="holds no pairs"):
            load_pairs(listed(tmp_path, text), faces)
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DatasetError, match="it is no text"):
        load_pairs(path, faces)
    for wrong in (tmp_path, tmp_path / "no.txt"):
        with pytest.raises(InputError, match="cannot read pairs"):
            load_pairs(wrong, faces)
    path.write_text(LISTED)
    monkeypatch.setattr(module, "_LARGEST_FILE", len(LISTED))
    assert len(load_pairs(path, faces)) == 2
    monkeypatch.setattr(module, "_LARGEST_FILE", len(LISTED) - 1)
    with pytest.raises(DatasetError, match="larger than any list"):
        load_pairs(path, faces)


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("Abel_01 2\t\n,#.²/-"), max_size=40))
def test_any_text_is_a_list_or_one_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    faces = face_set("A", "A_0001", "b/1.jpg", "e_0002")
    try:
        found = load_pairs(listed(tmp_path_factory.mktemp("any"), text), faces)
    except DatasetError:
        return
    assert len(found) >= 2


def within(**changes: Integers) -> FaceSet:
    pairs = {
        "first": np.array([0, 1, 2]),
        "second": np.array([1, 2, 5]),
        "same": np.array([1, 1, 0]),
        "fold": np.array([0, 4, 4]),
    }
    names = {name: array for name, array in (pairs | changes).items() if array.size or name not in changes}
    return FaceSet(np.eye(6, 7, dtype=np.float32), LFW_NAMES, "face", {}, names)


def test_pairs_within_a_set() -> None:
    assert plain(pairs_within(within())) == [(0, 1, True, 0), (1, 2, True, 4), (2, 5, False, 4)]


@pytest.mark.parametrize("missing", ["first", "second", "same", "fold"])
def test_a_set_without_pairs_of_its_own(missing: str) -> None:
    with pytest.raises(DatasetError, match="bring no pairs: name a file"):
        pairs_within(within(**{missing: np.empty(0, np.int64)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": np.array([0, 1])}, "do not fit each other"),
        ({"fold": np.array([[0, 1, 2]])}, "do not fit each other"),
        ({name: np.array([[0, 1]]) for name in ("first", "second", "same", "fold")}, "do not fit each other"),
        ({"first": np.array([0, 1, 6])}, "rows that are not there"),
        ({"second": np.array([0, -1, 2])}, "rows that are not there"),
        ({"same": np.array([0, 0, 0])}, "both some of one person"),
        ({"same": np.array([1, 2, 1])}, "both some of one person"),
    ],
)
def test_pairs_within_that_do_not_fit(changes: dict[str, Integers], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        pairs_within(within(**changes))


def test_no_pairs_within() -> None:
    nothing = {name: np.empty(0, np.int64) for name in ("first", "second", "same", "fold")}
    with pytest.raises(DatasetError, match="both some of one person"):
        pairs_within(FaceSet(np.eye(6, 7, dtype=np.float32), LFW_NAMES, "face", {}, nothing))


def test_pairs_need_as_many_of_everything() -> None:
    two, three = np.array([0, 1]), np.array([0, 1, 2])
    with pytest.raises(InputError, match="as many first ones"):
        FacePairs(two, two, np.array([True, False]), three)


def test_lfw_itself(real_data: Path) -> None:
    folder = real_data / "faces"
    if not folder.is_dir():
        pytest.skip("no faces in FEATVEIL_DATA")
    faces = load_faces(folder / "lfw_arcface_y1_128.npz")
    found = load_pairs(folder / "pairs.txt", faces)
    assert len(found) == 6000
    assert np.bincount(found.fold).tolist() == [600] * 10
    assert np.bincount(found.fold[found.same]).tolist() == [300] * 10
    people = faces.people
    assert ((people[found.first] == people[found.second]) == found.same).all()
    lines = (folder / "pairs.txt").read_text().splitlines()[1:]
    for place in (0, 299, 300, 599, 600, 5999):
        words = lines[place].split()
        other = words[0] if len(words) == 3 else words[2]
        expected = f"{words[0]}_{int(words[1]):04d}", f"{other}_{int(words[-1]):04d}"
        assert (faces.names[found.first[place]], faces.names[found.second[place]]) == expected
    away = np.linalg.norm(faces.values[found.first] - faces.values[found.second], axis=1)
    assert np.median(away[found.same]) < np.quantile(away[~found.same], 0.05)
