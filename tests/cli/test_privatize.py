"""featveil privatize."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import featveil as fv
from featveil import registry
from featveil.cli import privatize as command
from featveil.core.options import option
from featveil.formats import hloc
from featveil.pipelines.privatize_parts.outputs import targets


@pytest.fixture
def raw(image: Path) -> Path:
    fv.save(fv.extract(image, max_features=40), image.with_name("raw.veil"))
    return image.with_name("raw.veil")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of another kind."""
    values = np.random.default_rng(1).random((64, 128), np.float32)
    fv.save_database(fv.Database(values, "rootsift", 4), tmp_path / "other.safetensors")
    return tmp_path / "other.safetensors"


def test_release_of_a_raw_file(run: Any, raw: Path, tmp_path: Path) -> None:
    result = run("privatize", raw, "--out", tmp_path / "out.veil", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    private = fv.load(tmp_path / "out.veil")
    assert isinstance(private, fv.PrivateFeatures)
    assert (shown["features"], shown["defense"]) == (40, private.defense)
    assert (private.defense["strategy"], private.defense["dimension"]) == ("sub-hybrid", 4)
    assert shown["bytes"] == (tmp_path / "out.veil").stat().st_size
    assert private.keypoints is not None and private.keypoints.scale is None


def test_a_full_disk_is_an_error_that_names_the_output(
    refused: Any, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        said = refused("privatize", raw, "--out", tmp_path / "out.veil")
    assert f"cannot write {tmp_path / 'out.veil'}: No space left" in said


def test_what_is_said_to_a_person(run: Any, image: Path, tmp_path: Path) -> None:
    shown = run("privatize", image, "--out", tmp_path / "out.veil").stdout
    for words in ("sub-hybrid, dimension 4", "nothing is proved", "position of every feature"):
        assert words in shown
    assert "scale" not in shown
    kept = run("privatize", image, "--out", tmp_path / "kept.veil", "--keep-geometry").stdout
    assert "scale of every feature" in kept
    private = fv.load(tmp_path / "kept.veil")
    assert private.keypoints is not None and private.keypoints.scale is not None


def test_a_folder_of_images_and_features_is_ambiguous(refused: Any, raw: Path, image: Path, tmp_path: Path) -> None:
    assert raw.parent == image.parent
    assert "both images and .veil files" in refused("privatize", image.parent, "--out", tmp_path / "out")


def test_resuming_with_other_settings_is_refused(run: Any, refused: Any, raw: Path, tmp_path: Path) -> None:
    command = ["privatize", raw, "--out", tmp_path / "x.veil", "--resume"]
    assert run(*command).exit_code == 0
    assert run(*command).exit_code == 0
    assert "other settings" in refused(*command, "--dimension", "8")


def test_one_unsuitable_image_does_not_stop_the_others(run: Any, image: Path, tmp_path: Path) -> None:
    good = fv.extract(image, max_features=20)
    xy = fv.Keypoints(np.zeros((2, 2), np.float32))
    wide = fv.Features(fv.Points(np.ones((2, 256), np.float32)), "sift", xy)
    hloc.write_features(tmp_path / "f.h5", [("a", wide), ("b", good)])
    result = run("privatize", tmp_path / "f.h5", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 1, result.output
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["failed"]) == (1, 1)


def test_hloc_files_know_their_kind_or_are_told(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    hloc.write_features(tmp_path / "f.h5", [("a", fv.extract(image, "rootsift", 20))])
    out = ["--out", tmp_path / "x.veil"]
    assert "are rootsift, not sift" in refused("privatize", tmp_path / "f.h5", *out, "--kind", "sift")
    assert run("privatize", tmp_path / "f.h5", *out).exit_code == 0
    assert fv.load(tmp_path / "x.veil").kind == "rootsift"
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        del file["a"].attrs["featveil_kind"]
    assert "name their kind" in refused("privatize", tmp_path / "f.h5", *out, "--overwrite")
    assert run("privatize", tmp_path / "f.h5", *out, "--overwrite", "--kind", "rootsift").exit_code == 0


def test_two_releases_differ(run: Any, raw: Path, tmp_path: Path) -> None:
    for name in ("1.veil", "2.veil"):
        run("privatize", raw, "--out", tmp_path / name)
    assert (tmp_path / "1.veil").read_bytes() != (tmp_path / "2.veil").read_bytes()


def test_hloc_names_become_folders(run: Any, image: Path, tmp_path: Path) -> None:
    features = fv.extract(image, max_features=20)
    hloc.write_features(tmp_path / "f.h5", [("db/1.jpg", features), ("query.jpg", features)])
    result = run("privatize", tmp_path / "f.h5", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.veil"))
    assert written == ["db/1.jpg.veil", "query.jpg.veil"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(fv.InputError, match="leads out"):
        targets([name], tmp_path / "out")


def test_a_link_in_the_folder_does_not_lead_out(refused: Any, image: Path, tmp_path: Path) -> None:
    hloc.write_features(tmp_path / "f.h5", [("db/1.jpg", fv.extract(image, max_features=20))])
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/db").symlink_to(tmp_path / "elsewhere")
    assert "leads out" in refused("privatize", tmp_path / "f.h5", "--out", tmp_path / "out")


def test_dimension_one_only_by_name(run: Any, refused: Any, raw: Path, tmp_path: Path) -> None:
    arguments = ["privatize", raw, "--out", tmp_path / "x.veil", "--dimension", "1"]
    assert "dimension 1" in refused(*arguments)
    assert run(*arguments, "--allow-line").exit_code == 0


def test_bad_settings(refused: Any, raw: Path, database: Path, tmp_path: Path) -> None:
    command = ("privatize", raw, "--out", tmp_path / "x.veil")
    assert "sub-hybrid" in refused(*command, "--strategy", "bogus")
    assert "below the descriptor size" in refused(*command, "--dimension", 128)
    assert "at least 1" in refused(*command, "--dimension", 0)
    assert "between 0 and 1" in refused(*command, "--random-share", 2)
    assert "hides nothing" in refused(*command, "--defense", "identity")
    assert "unknown defense" in refused(*command, "--defense", "bogus")
    assert "use a sift database" in refused(*command, "--database", database)
    assert "expected 00ff" in refused(*command, "--database", database, "--database-digest", "00ff")
    assert "needs --database" in refused(*command, "--database-digest", "00ff")
    assert "no database file" in refused(*command, "--database", tmp_path / "no.safetensors")
    assert "labels" in refused(*command, "--strategy", "hybrid+")


def test_more_directions_than_database_entries(refused: Any, image: Path, database: Path, tmp_path: Path) -> None:
    command = ("privatize", image, "--kind", "rootsift", "--out", tmp_path / "x.veil", "--database", database)
    assert "use a larger database" in refused(*command, "--strategy", "sub-adversarial", "--dimension", 20)


def test_bad_inputs(run: Any, refused: Any, raw: Path, empty: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.veil")
    run("privatize", raw, "--out", tmp_path / "private.veil")
    (tmp_path / "cut.veil").write_bytes(raw.read_bytes()[:-50])
    (tmp_path / "text.h5").write_text("no")
    assert "private already" in refused("privatize", tmp_path / "private.veil", *out)
    assert "cut.veil" in refused("privatize", tmp_path / "cut.veil", *out)
    assert "no features" in refused("privatize", empty, *out)
    assert "not an HDF5 file" in refused("privatize", tmp_path / "text.h5", *out)
    assert "nothere.veil" in refused("privatize", tmp_path / "nothere.veil", *out)


def test_inputs_and_earlier_releases_are_kept(run: Any, refused: Any, raw: Path, tmp_path: Path) -> None:
    assert "is an input" in refused("privatize", raw, "--out", raw, "--overwrite")
    assert "is an input" in refused("privatize", raw, "--out", raw.parent)
    assert "create it first" in refused("privatize", raw, "--out", tmp_path / "no/x.veil")
    out = ("privatize", raw, "--out", tmp_path / "x.veil")
    assert run(*out).exit_code == 0
    released = (tmp_path / "x.veil").read_bytes()
    assert "--resume" in refused(*out)
    result = run(*out, "--resume", "--json")
    assert (json.loads(result.stdout)["skipped"], (tmp_path / "x.veil").read_bytes()) == (1, released)
    assert run(*out, "--overwrite").exit_code == 0
    assert (tmp_path / "x.veil").read_bytes() != released


def test_a_damaged_file_among_good_ones_is_left_out(run: Any, raw: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    raw.rename(tmp_path / "in/raw.veil")
    (tmp_path / "in/cut.veil").write_bytes((tmp_path / "in/raw.veil").read_bytes()[:-50])
    result = run("privatize", tmp_path / "in", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 1, result.output
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["failed"]) == (1, 1)


def test_subspaces_that_match_nothing_private_are_warned_of_once(run: Any, image: Path, shifted: Path) -> None:
    options = ("--strategy", "random", "--max-features", 20)
    result = run("privatize", image, shifted, "--out", image.parent / "private", *options, "--dimension", 64)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("matched with raw features only") == 1
    quiet = run("privatize", image, "--out", image.with_name("b.veil"), *options, "--dimension", 63)
    assert "matched with raw features only" not in quiet.stderr


SOUND = ("--defense", "subset", "--epsilon", 8, "--max-features", 20)


def test_known_attacks_are_one_line_of_warning(run: Any, image: Path, shifted: Path) -> None:
    result = run("privatize", image, shifted, "--out", image.parent / "out", "--max-features", 20)
    assert result.exit_code == 0 and result.stderr.count("\n") == 1, result.output
    assert result.stderr.startswith("warning: plain sift under lifting: the lattice attack finds")
    assert "; 3 more: vertex, database, overlap; --strict refuses" in result.stderr
    assert "attacks  " not in result.stdout
    sound = run("privatize", image, "--out", image.with_name("sound.veil"), *SOUND)
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert "attacks    a blind guess" in sound.stdout


def test_weaknesses_for_machines(run: Any, raw: Path, tmp_path: Path) -> None:
    """Of the kind that the file holds, which no option names."""
    result = run("privatize", raw, "--out", tmp_path / "x.veil", "--keep-geometry", "--json")
    weaknesses = json.loads(result.stdout)["weaknesses"]
    assert [weakness["attack"] for weakness in weaknesses] == ["lattice", "vertex", "database", "overlap"]
    assert all(set(weakness) == {"choice", "attack", "finding", "advice", "message"} for weakness in weaknesses)
    assert weaknesses[-1]["choice"] == "overlapping keypoints with scale and orientation"
    sound = run("privatize", raw, "--out", tmp_path / "y.veil", *SOUND, "--json")
    assert json.loads(sound.stdout)["weaknesses"] == []


def test_several_kinds_are_one_warning(run: Any, image: Path, tmp_path: Path) -> None:
    features = [(kind, fv.extract(image, kind, 20)) for kind in ("rootsift", "sift")]
    hloc.write_features(tmp_path / "f.h5", features)
    result = run("privatize", tmp_path / "f.h5", "--out", tmp_path / "out")
    assert result.exit_code == 0 and result.stderr.count("\n") == 1, result.output
    assert "plain sift" in result.stderr and "; 3 more: vertex, database, overlap;" in result.stderr


def test_nothing_new_is_nothing_to_warn_of(run: Any, raw: Path, tmp_path: Path) -> None:
    command = ("privatize", raw, "--out", tmp_path / "x.veil")
    assert "warning" in run(*command).stderr
    assert run(*command, "--resume").stderr == ""


def test_strict_refuses_and_lists_everything(refused: Any, image: Path, raw: Path, tmp_path: Path) -> None:
    hloc.write_features(tmp_path / "f.h5", [("a", fv.extract(image, "sift", 20))])
    for source in (image, raw, tmp_path / "f.h5"):
        said = refused("privatize", source, "--out", tmp_path / "x.veil", "--strict")
        for attack in ("lattice", "vertex", "database", "overlap"):
            assert f"the {attack} attack" in said
    said = refused("privatize", image, "--out", tmp_path / "x.veil", "--strict", "--kind", "rootsift")
    assert "lattice" not in said and "vertex" in said
    large = ("--defense", "subset", "--epsilon", 10.5)
    assert "epsilon 10.5" in refused("privatize", image, "--out", tmp_path / "x.veil", "--strict", *large)


def test_strict_lets_what_is_sound_pass(run: Any, refused: Any, raw: Path, tmp_path: Path) -> None:
    assert run("privatize", raw, "--out", tmp_path / "x.veil", "--strict", *SOUND).exit_code == 0
    assert isinstance(fv.load(tmp_path / "x.veil").descriptors, fv.WordSets)
    (tmp_path / "cut.veil").write_bytes(raw.read_bytes()[:-50])
    said = refused("privatize", tmp_path / "cut.veil", "--out", tmp_path / "y.veil", "--strict")
    assert "cut.veil" in said and "known to be broken" not in said


def test_a_refusal_for_one_input_is_one_for_all(refused: Any, image: Path, tmp_path: Path) -> None:
    """Lifting of a kind without zeros is weak for fewer reasons, but the reasons of every input count."""
    kinds = [("a", "rootsift"), ("b", "sift")]
    hloc.write_features(tmp_path / "f.h5", [(name, fv.extract(image, kind, 20)) for name, kind in kinds])
    assert "lattice" in refused("privatize", tmp_path / "f.h5", "--out", tmp_path / "out", "--strict")


@dataclass(frozen=True)
class Rounding:
    """A defense that another package might add."""

    name: ClassVar[str] = "rounding"
    grid: float = option(0.5, help="distance between the values that are left.")

    def privatize(self) -> None:
        """Never called."""


def test_a_new_defense_brings_its_options() -> None:
    def shown() -> str:
        app = typer.Typer()
        app.command()(importlib.reload(command).privatize)
        return CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout

    registry.register(Rounding)
    try:
        assert "--grid" in (help_text := shown()) and "Rounding: distance between the values" in help_text
    finally:
        registry.DEFENSES.unregister("rounding")
    assert "--grid" not in shown()
