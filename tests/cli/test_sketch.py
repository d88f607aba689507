"""featveil sketch, on six small views of the rendered room: from a map to a sketch that a device trusts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colmap_databases import write_database
from featveil.core import Features, Points
from featveil.databases import Database, builtin, save_database
from featveil.extractors import extract
from featveil.formats import hloc, veil
from featveil.gate import Exact, Quantised, load_sketch, save_sketch
from featveil.gate.probing import plant
from featveil.gate.signing import check_signer
from featveil.gate.tile_files import load_tiles, read_index, save_tiles
from rooms import Room, RoomFiles


@pytest.fixture
def mapped(room: Room, files: RoomFiles, tmp_path: Path) -> Path:
    """A folder as featveil map --defense raw leaves it."""
    folder = tmp_path / "map"
    shutil.copytree(room.model, folder)
    shutil.copy(files.raw, folder / "features.h5")
    return folder


@pytest.fixture
def key(run: Any, tmp_path: Path) -> Path:
    pytest.importorskip("cryptography", reason="signatures: pip install 'featveil[signing]'")
    assert run("sketch", "key", tmp_path / "service.key").exit_code == 0
    return tmp_path / "service.key"


def test_a_map_is_sketched_and_a_query_localized(
    run: Any, ran: Any, mapped: Path, key: Path, room: Room, files: RoomFiles, tmp_path: Path
) -> None:
    out, picture = tmp_path / "place.sketch", tmp_path / "calibration.png"
    command = ("sketch", "build", mapped, "--out", out, "--key", key, "--source", "the room")
    shown = ran(*command, "--picture", picture)
    sketch = load_sketch(out)
    assert (shown["digest"], shown["entries"], shown["bytes"]) == (sketch.digest, len(sketch), out.stat().st_size)
    assert isinstance(sketch.entries, Quantised) and shown["entry_bytes"] == 16
    assert (sketch.model, sketch.model_points) == (room.map.digest, len(room.map.points))
    assert sketch.source == "the room" and picture.read_bytes().startswith(b"\x89PNG")
    assert sketch.calibration is not None and sketch.calibration.foreign is not None
    check_signer(sketch, str(tmp_path / "service.key.pub"))
    text = run(*command, "--overwrite").stdout
    assert f"{sketch.calibration.tau:.3f}" in text and "<- chosen" in text and sketch.digest in text
    assert "Of all other features it sends nothing." in text
    query, poses = tmp_path / "query.veil", tmp_path / "poses.txt"
    gate = ("--defense", "gate", "--sketch", out, "--signer", tmp_path / "service.key.pub")
    photograph = files.images / room.names[2]
    assert run("privatize", photograph, *gate, "--out", query).exit_code == 0
    assert run("localize", query, "--model", mapped, "--out", poses).exit_code == 0
    assert len(poses.read_text().splitlines()) == 1


def test_what_is_shown_is_what_was_measured(run: Any, mapped: Path, tmp_path: Path) -> None:
    out = tmp_path / "place.sketch"
    text = run("sketch", "build", mapped, "--out", out, "--pass-rate", 0.6).stdout
    known = load_sketch(out).calibration
    assert known is not None and known.foreign is not None and known.target == 0.6
    line = next(line for line in text.splitlines() if line.endswith("<- chosen"))
    at = [known.at(shares, known.tau) for shares in (known.passes, known.right, known.foreign)]
    assert line.split()[:4] == [f"{known.tau:.3f}", f"{at[0]:.1%}", f"{at[1]:.1%}", f"{at[2]:.2%}"]
    assert 0.6 <= at[0] < 0.7
    info = run("sketch", "info", out).stdout
    assert line in info and "signed with  nothing" in info


@pytest.mark.parametrize("stated", ["32", "exact"])
def test_bytes(ran: Any, mapped: Path, tmp_path: Path, stated: str) -> None:
    shown = ran("sketch", "build", mapped, "--out", tmp_path / "a.sketch", "--bytes", stated, "--no-calibrate")
    entries = load_sketch(tmp_path / "a.sketch").entries
    assert isinstance(entries, Exact if stated == "exact" else Quantised)
    assert shown["entry_bytes"] == (256 if stated == "exact" else 32) and shown["calibration"] is None


def test_few_entries_are_kept_exact_and_that_is_said(run: Any, ran: Any, room: Room, tmp_path: Path) -> None:
    features = tmp_path / "few.h5"
    hloc.write_features(features, list(room.features.items())[:1])
    command = ("sketch", "build", room.model, "--features", features, "--out", tmp_path / "a.sketch", "--no-calibrate")
    shown = ran(*command)
    assert shown["entries"] < 1024 and shown["entry_bytes"] == 256 and shown["kept_exact"]
    assert "--bytes was not used" in run(*command, "--overwrite").stdout
    exact = run(*command, "--overwrite", "--bytes", "exact")
    assert exact.exit_code == 0 and "--bytes was not used" not in exact.stdout


@pytest.mark.parametrize(("kind", "other"), [("sift", "rootsift"), ("rootsift", "sift")])
def test_features_that_are_called_the_wrong_kind_are_a_warning(
    run: Any, room: Room, files: RoomFiles, tmp_path: Path, kind: str, other: str
) -> None:
    features = tmp_path / "wrong.h5"
    misnamed = {
        name: Features(extract(files.images / name, other).descriptors.take(np.arange(len(one))), kind, one.keypoints)
        for name, one in room.features.items()
    }
    hloc.write_features(features, misnamed.items())
    command = ("sketch", "build", room.model, "--out", tmp_path / "a.sketch", "--no-calibrate", "--features")
    assert f"called {kind} and look like {other}" in " ".join(run(*command, features).stderr.split())
    assert "look like" not in run(*command, files.raw, "--overwrite").stderr


def test_features_of_any_sort(ran: Any, room: Room, files: RoomFiles, tmp_path: Path) -> None:
    """An hloc file, .veil files and a COLMAP database of the same features say the same of the map."""
    descriptors = {name: found.descriptors.values for name, found in room.features.items()}
    for name, found in room.features.items():
        veil.save(found, _made(tmp_path / "veils" / f"{name}.veil"))
    stored = {
        name: (
            np.column_stack([room.xy(name), np.ones((len(values), 2))]).astype(np.float32),
            np.clip(np.rint(512 * values / np.linalg.norm(values, axis=1, keepdims=True)), 0, 255).astype(np.uint8),
        )
        for name, values in descriptors.items()
    }
    write_database(tmp_path / "colmap.db", stored)
    sketches = []
    for number, source in enumerate((files.raw, tmp_path / "veils", tmp_path / "colmap.db")):
        out = tmp_path / f"{number}.sketch"
        kind = ("--kind", "sift") if source.suffix == ".db" else ()
        ran("sketch", "build", room.model, "--features", source, "--out", out, "--no-calibrate", *kind)
        sketches.append(load_sketch(out))
    first = sketches[0]
    for other in sketches[1:]:
        assert (other.kind, other.model) == ("sift", room.map.digest)
        assert np.array_equal(other.points, first.points) and np.array_equal(other.images, first.images)


def _made(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    return path


def test_descriptors_that_featveil_does_not_know(ran: Any, run: Any, room: Room, tmp_path: Path) -> None:
    """Another kind and size: it is calibrated, with a warning, and with a corpus and a background of its own."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(128, 128)))[0][:, :48]

    def other(values: Any) -> Points:
        return Points((values @ turn).astype(np.float32))

    features, far = tmp_path / "disk.h5", tmp_path / "far.h5"
    turned = {n: Features(other(f.descriptors.values), "disk", f.keypoints) for n, f in room.features.items()}
    hloc.write_features(features, turned.items())
    base = builtin("sift").points()
    some = Features(other(base[:300]), "disk", turned[room.names[0]].take(np.arange(300)).keypoints)
    hloc.write_features(far, [("far.png", some)])
    save_database(Database.from_array(other(base[300:900]).values, "disk", 1, rng=rng), tmp_path / "bg.safetensors")
    command = ("sketch", "build", room.model, "--features", features, "--out", tmp_path / "a.sketch")
    alone = run(*command)
    assert alone.exit_code == 0 and alone.stderr.count("warning: ") == 2 and "no foreign disk" in alone.stderr
    shown = ran(*command, "--foreign", far, "--background", tmp_path / "bg.safetensors", "--overwrite")
    assert shown["size"] == 48 and shown["calibration"]["corpus"] == 256
    assert shown["calibration"]["contrast"] is not None and shown["calibration"]["foreign"][-1] < 1


def test_more_foreign_content(ran: Any, refused: Any, mapped: Path, image: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "a.sketch", "--overwrite")
    without = ran("sketch", "build", mapped, *out)["calibration"]
    shown = ran("sketch", "build", mapped, *out, "--foreign", image, "--foreign", mapped / "features.h5")
    # The map's own content is not foreign to it.
    assert shown["calibration"]["foreign"][-1] > 1.5 * without["foreign"][-1]
    for wrong in (tmp_path / "none.h5", tmp_path / "none", mapped / "images.bin"):
        refused("sketch", "build", mapped, *out, "--foreign", wrong)


def test_every_point_of_the_map_is_sketched(ran: Any, mapped: Path, room: Room, tmp_path: Path) -> None:
    """By every keypoint that has a point, and every one without at the place of one that has."""
    shown = ran("sketch", "build", mapped, "--out", tmp_path / "a.sketch", "--no-calibrate")
    views = room.map.views.values()
    places = [{tuple(xy) for xy in view.xy[view.points >= 0].tolist()} for view in views]
    entries = sum(tuple(xy) in known for view, known in zip(views, places, strict=True) for xy in view.xy.tolist())
    assert (shown["points"], shown["entries"]) == (len(room.map.points), entries)
    assert entries > sum(int((view.points >= 0).sum()) for view in views)


def test_a_changed_byte_is_noticed_by_every_command(
    run: Any, refused: Any, mapped: Path, image: Path, key: Path, tmp_path: Path
) -> None:
    """With or without a pinned key; of a sketch whose digest was made to fit, `audit` checks the signature."""
    place, damaged = tmp_path / "place.sketch", tmp_path / "damaged.sketch"
    run("sketch", "build", mapped, "--out", place, "--key", key)
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1  # of a descriptor
    damaged.write_bytes(content)
    for command in (("info", damaged), ("audit", damaged), ("merge", damaged, "--out", tmp_path / "m.sketch")):
        assert "digest" in refused("sketch", *command)
    gate = ("--defense", "gate", "--sketch", damaged, "--out", tmp_path / "q.veil")
    assert "digest" in refused("privatize", image, *gate)
    other = load_sketch(place)
    save_sketch(replace(other, source="another place"), damaged)
    assert "signature" in refused("sketch", "audit", damaged)
    assert "not signed" in refused("sketch", "audit", _unsigned(place, damaged), "--signer", f"{key}.pub")


def _unsigned(path: Path, target: Path) -> Path:
    save_sketch(replace(load_sketch(path), signature=None), target)
    return target


def test_a_sketch_that_its_own_audit_refuses_is_a_warning(run: Any, mapped: Path, tmp_path: Path) -> None:
    own = mapped / "features.h5"
    result = run("sketch", "build", mapped, "--out", tmp_path / "a.sketch", "--foreign", own)
    assert result.exit_code == 0 and "sketch audit refuses more than 3%" in " ".join(result.stderr.split())
    assert run("sketch", "audit", tmp_path / "a.sketch", "--foreign", own).exit_code == 1


def test_an_audit_accepts_an_honest_sketch_and_not_one_with_something_in_it(
    run: Any, ran: Any, mapped: Path, image: Path, tmp_path: Path
) -> None:
    place, bad = tmp_path / "place.sketch", tmp_path / "bad.sketch"
    run("sketch", "build", mapped, "--out", place)
    assert [one["accepted"] for one in ran("sketch", "audit", place)["sketches"]] == [True]
    save_sketch(plant(load_sketch(place), extract(image).descriptors, "none"), bad)
    result = run("sketch", "audit", place, bad)
    assert result.exit_code == 1 and f"{bad}: do not use it" in result.stdout
    assert f"{place}: nothing speaks against it" in result.stdout
    refused = run("sketch", "audit", bad, "--single", 1, "--foreign", image, "--passing", 0.001, "--json")
    (audit,) = json.loads(refused.stdout)["sketches"]
    assert refused.exit_code == 1 and len(audit["reasons"]) == 1 and audit["passing"] > 0.001
    run("sketch", "build", mapped, "--out", place, "--no-calibrate", "--overwrite")
    assert run("sketch", "audit", place).exit_code == 2 and run("sketch", "audit", place, "--tau", 0.3).exit_code == 0


def test_tiles(run: Any, ran: Any, refused: Any, mapped: Path, image: Path, key: Path, tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole.sketch", tmp_path / "tiles"
    gate = ("--defense", "gate", "--out", tmp_path / "q.veil")
    ran("sketch", "build", mapped, "--out", whole)
    shown = ran("sketch", "build", mapped, "--out", folder, "--tile-images", 2, "--key", key)
    listed = read_index(folder)
    assert len(listed) == len(shown["tiles"]) >= 3
    assert {path.name for path in folder.iterdir()} == {"index.json", *(tile.file for tile in listed)}
    for tile, (path, sketch) in zip(listed, load_tiles(folder), strict=True):
        assert (tile.digest, tile.bytes, tile.entries) == (sketch.digest, path.stat().st_size, len(sketch))
        assert sketch.calibration == load_sketch(whole).calibration
        check_signer(sketch, str(tmp_path / "service.key.pub"))
    merged = ran("sketch", "merge", folder, "--out", tmp_path / "merged.sketch")
    assert merged["digest"] == load_sketch(whole).digest and merged["signed_with"] is None
    info = run("sketch", "info", folder, "--signer", tmp_path / "service.key.pub").stdout
    assert info.count("<- chosen") == 1 and info.count("calibrated as the one above") == len(listed) - 1
    of_one = " ".join(run("sketch", "info", folder / "tile-000.sketch").stdout.split())
    assert "the calibration above is that of the whole map" in of_one
    assert "whole map" not in " ".join(run("sketch", "info", whole).stdout.split())
    assert "featveil sketch merge" in refused("privatize", image, *gate, "--sketch", folder)
    again = run("sketch", "build", mapped, "--out", folder, "--tile-images", 6, "--overwrite")
    assert again.exit_code == 0 and len(read_index(folder)) < len(listed) and "tile-000.sketch" in again.stdout


def test_a_damaged_or_exchanged_tile_is_noticed(run: Any, mapped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiles"
    run("sketch", "build", mapped, "--out", folder, "--tile-images", 2, "--no-calibrate")
    shutil.copy(folder / "tile-000.sketch", folder / "tile-001.sketch")
    result = run("sketch", "info", folder)
    assert result.exit_code == 2 and "expected" in result.stderr and result.stdout == ""
    for wrong in ("{}", "[", '{"version":1,"tiles":[]}', '{"version":2,"tiles":[{}]}', "\ud800"):
        (folder / "index.json").write_text(wrong, "utf-8", "replace")
        assert run("sketch", "info", folder).exit_code == 2
    (folder / "index.json").unlink()
    assert "holds no tiles" in run("sketch", "merge", folder, "--out", tmp_path / "a.sketch").stderr


@pytest.mark.parametrize("file", ["../place.sketch", "/etc/passwd", "tile-0.sketch", "", None, 3])
def test_an_index_names_files_of_its_folder_only(run: Any, mapped: Path, tmp_path: Path, file: object) -> None:
    folder = tmp_path / "tiles"
    run("sketch", "build", mapped, "--out", folder, "--tile-images", 6, "--no-calibrate")
    index = json.loads((folder / "index.json").read_text())
    index["tiles"][0]["file"] = file
    (folder / "index.json").write_text(json.dumps(index))
    assert "not a usable index" in run("sketch", "info", folder).stderr


def test_signatures(run: Any, ran: Any, refused: Any, mapped: Path, key: Path, tmp_path: Path) -> None:
    place, copy, public = tmp_path / "place.sketch", tmp_path / "copy.sketch", tmp_path / "service.key.pub"
    ran("sketch", "build", mapped, "--out", place, "--no-calibrate")
    digest = load_sketch(place).digest
    assert "not signed" in refused("sketch", "info", place, "--signer", public)
    ran("sketch", "sign", place, "--key", key, "--out", copy)
    assert load_sketch(place).signature is None and load_sketch(copy).digest == digest
    assert "is there already" in refused("sketch", "sign", place, "--key", key, "--out", copy)
    ran("sketch", "sign", place, "--key", key)
    assert place.read_bytes() == copy.read_bytes()
    shown = ran("sketch", "info", place, copy, "--signer", public)["sketches"]
    assert [one["digest"] for one in shown] == [digest] * 2
    run("sketch", "key", tmp_path / "other.key")
    assert "place.sketch" in refused("sketch", "info", place, "--signer", tmp_path / "other.key.pub")
    content = place.read_bytes()
    value = shown[0] and load_sketch(place).signature
    place.write_bytes(content.replace(value.value.encode(), value.value[::-1].encode()))  # type: ignore[union-attr]
    assert "signature of the sketch is wrong" in refused("sketch", "info", place)
    assert "exists" in refused("sketch", "key", key)


def test_tiles_are_signed_together(ran: Any, mapped: Path, key: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiles"
    ran("sketch", "build", mapped, "--out", folder, "--tile-images", 2, "--no-calibrate")
    before = [tile.digest for tile in read_index(folder)]
    assert len(ran("sketch", "sign", folder, "--key", key)["sketches"]) == len(before)
    assert [tile.digest for tile in read_index(folder)] == before
    ran("sketch", "info", folder, "--signer", tmp_path / "service.key.pub")


def test_signing_in_place_loses_nothing(refused: Any, ran: Any, mapped: Path, key: Path, tmp_path: Path) -> None:
    folder, link = tmp_path / "tiles", tmp_path / "link"
    ran("sketch", "build", mapped, "--out", folder, "--tile-images", 2, "--no-calibrate")
    shutil.copy(folder / "tile-000.sketch", folder / "tile-007.sketch")
    assert "tile-007.sketch" in refused("sketch", "sign", folder, "--key", key)
    (folder / "tile-007.sketch").unlink()
    link.symlink_to(folder)
    ran("sketch", "sign", link, "--key", key)
    assert link.is_symlink() and link.resolve() == folder
    ran("sketch", "info", folder, "--signer", tmp_path / "service.key.pub")


def test_merging_says_what_becomes_of_the_calibration(
    run: Any, refused: Any, mapped: Path, room: Room, files: RoomFiles, tmp_path: Path
) -> None:
    one, two, exact = (tmp_path / f"{name}.sketch" for name in ("one", "two", "exact"))
    run("sketch", "build", mapped, "--out", one)
    run("sketch", "build", mapped, "--out", two, "--pass-rate", 0.5)
    run("sketch", "build", mapped, "--out", exact, "--bytes", "exact", "--no-calibrate")
    merged = run("sketch", "merge", one, two, "--out", tmp_path / "m.sketch")
    assert merged.exit_code == 0 and "warning: these sketches were calibrated differently" in merged.stderr
    assert "not calibrated: a device must state a tau" in merged.stdout
    assert "quantised differently" in refused("sketch", "merge", one, exact, "--out", tmp_path / "n.sketch")
    assert "is there already" in refused("sketch", "merge", one, two, "--out", one)


def test_what_is_refused(refused: Any, room: Room, files: RoomFiles, mapped: Path, image: Path, tmp_path: Path) -> None:
    """In one line, with nothing written."""
    out = ("--out", tmp_path / "a.sketch")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").write_bytes(b"")
    (tmp_path / "there.sketch").write_bytes(b"")
    private = tmp_path / "private"
    shutil.copytree(room.model, private)
    shutil.copy(files.lifted, private / "private.h5")
    rng = np.random.default_rng(0)
    elsewhere = {
        name: Features(one.descriptors, "sift", type(one.keypoints)(rng.uniform(0, 200, (len(one), 2)).astype("f4")))  # type: ignore[misc]
        for name, one in room.features.items()
    }
    hloc.write_features(tmp_path / "moved.h5", elsewhere.items())
    first, *others = room.names
    mixed = {first: room.features[first]} | {
        name: Features(room.features[name].descriptors, "rootsift", room.features[name].keypoints) for name in others
    }
    hloc.write_features(tmp_path / "mixed.h5", mixed.items())
    hloc.write_features(tmp_path / "strangers.h5", [("x.png", room.features[first])])
    build = ("sketch", "build")
    for words, message in (
        ((*build, tmp_path, *out), "holds no COLMAP model"),
        ((*build, room.model, *out), "name the features that it was made of"),
        ((*build, private, *out), "private ones: name the raw ones"),
        ((*build, mapped, *out, "--features", files.lifted), "private ones: name the raw ones"),
        ((*build, mapped, *out, "--features", tmp_path / "moved.h5"), "not those of the model"),
        ((*build, mapped, *out, "--features", tmp_path / "mixed.h5"), "keep them apart"),
        ((*build, mapped, *out, "--features", tmp_path / "strangers.h5"), "names must agree"),
        ((*build, mapped, *out, "--features", tmp_path / "none.h5"), "does not exist"),
        ((*build, mapped, *out, "--kind", "rootsift"), "are sift, not rootsift"),
        ((*build, mapped, *out, "--bytes", 0), "1 to 256"),
        ((*build, mapped, *out, "--bytes", "many"), "or exact"),
        ((*build, mapped, *out, "--pass-rate", 1), "between 0 and 1"),
        ((*build, mapped, *out, "--pass-rate", "nan"), "between 0 and 1"),
        ((*build, mapped, *out, "--source", "a\nb"), "printable"),
        ((*build, mapped, *out, "--key", tmp_path / "none.key"), "cannot read the key"),
        ((*build, mapped, *out, "--picture", tmp_path / "a.jpg"), ".png"),
        ((*build, mapped, *out, "--picture", tmp_path / "no" / "a.png"), "does not exist"),
        ((*build, mapped, *out, "--no-calibrate", "--foreign", image), "leave --no-calibrate out"),
        ((*build, mapped, *out, "--background", image), "database"),
        ((*build, mapped, *out, "--tile-images", 0), "tile-images"),
        ((*build, mapped, "--out", tmp_path / "a.h5"), "a sketch is a .sketch file"),
        ((*build, mapped, "--out", tmp_path / "there.sketch"), "--overwrite replaces it"),
        ((*build, mapped, "--out", tmp_path / "full", "--tile-images", 2), "which is no tile"),
        ((*build, mapped, "--out", tmp_path / "there.sketch", "--tile-images", 2), "is a file"),
        (("sketch", "info", tmp_path / "none.sketch"), "not there"),
        (("sketch", "info", tmp_path / "there.sketch"), "not a usable sketch"),
        (("sketch", "info", tmp_path / "there.sketch", "--signer", "nobody"), "cannot read the key"),
        (("sketch", "sign", tmp_path / "there.sketch", "--key", tmp_path / "none.key"), "cannot read the key"),
    ):
        assert message in refused(*words), words


def test_a_map_without_points(refused: Any, room: Room, files: RoomFiles, tmp_path: Path) -> None:
    import pycolmap

    model = pycolmap.Reconstruction(room.model)
    for identity in list(model.points3D):
        model.delete_point3D(identity)
    (tmp_path / "bare").mkdir()
    model.write(tmp_path / "bare")
    words = ("sketch", "build", tmp_path / "bare", "--features", files.raw, "--out", tmp_path / "a.sketch")
    assert "has no points" in refused(*words)


def test_features_of_some_images_only(run: Any, room: Room, tmp_path: Path) -> None:
    """They are sketched with a warning; of one image nothing can be calibrated, and that is said."""
    for count, code in ((4, 0), (1, 2)):
        features, out = tmp_path / f"{count}.h5", tmp_path / f"{count}.sketch"
        hloc.write_features(features, list(room.features.items())[:count])
        result = run("sketch", "build", room.model, "--features", features, "--out", out)
        assert result.exit_code == code and out.exists() == (code == 0)
        assert ("have no features" if code == 0 else "nothing can be calibrated") in result.stderr


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("tiled", [False, True])
def test_a_full_disk_or_ctrl_c_leaves_what_was_there(
    run: Any, mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, tiled: bool
) -> None:
    """When a sketch, or the second of several tiles, is half-written."""
    out = tmp_path / ("tiles" if tiled else "a.sketch")
    command = ("sketch", "build", mapped, "--out", out, "--no-calibrate", *(("--tile-images", 2) if tiled else ()))
    assert run(*command).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write, calls = Path.write_bytes, 0

    def write_half(self: Path, content: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 + tiled:
            write(self, content[: len(content) // 2])
            raise failure
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", write_half)
    result = run(*command, "--overwrite", "--source", "another")
    assert result.exit_code == (2 if isinstance(failure, OSError) else 130) and "Traceback" not in result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [1, 2])
def test_old_tiles_stay_when_the_new_ones_cannot_be_moved(
    run: Any, mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: int
) -> None:
    folder = tmp_path / "tiles"
    run("sketch", "build", mapped, "--out", folder, "--tile-images", 2, "--no-calibrate")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    tiles, rename, calls = [sketch for _, sketch in load_tiles(folder)], Path.rename, 0

    def stop(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == step:
            raise failure
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(Exception if isinstance(failure, OSError) else KeyboardInterrupt):
        save_tiles(tiles[:1], folder, overwrite=True)
    assert calls >= step
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
