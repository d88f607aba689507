"""featveil privatize and match with words: the subset mechanism on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil as fv


@pytest.fixture
def codebook(tmp_path: Path) -> Path:
    """Half of the built-in words, as a codebook of one's own."""
    made = fv.Database(fv.builtin("sift").values[::2], "sift", 1)
    fv.save_database(made, tmp_path / "book.safetensors")
    return tmp_path / "book.safetensors"


def subset(*more: object, epsilon: object = 10) -> tuple[object, ...]:
    return ("--defense", "subset", "--epsilon", epsilon, *more)


def test_words_match_the_image_they_hide(run: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    out = tmp_path / "words.veil"
    result = run("privatize", image, "--out", out, *subset("--subset-size", 4), "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    private = fv.load(out)
    assert isinstance(private, fv.PrivateFeatures)
    assert isinstance(private.descriptors, fv.WordSets)
    assert private.descriptors.words.shape == (len(private), 4)
    total = 10.0 * len(private)
    expected = {"kind": "local-dp", "epsilon": 10.0, "unit": "descriptor", "tau": None}
    assert shown["guarantee"] == expected | {"image_epsilon": total, "total_epsilon": total}
    assert out.stat().st_size < 30 * len(private) + 1000
    shown = json.loads(run("match", out, shifted, "--json").stdout)
    assert shown["inliers"] > max(20, 2 * shown["inliers_by_chance"])
    assert f"local-dp: epsilon 10 a descriptor, {total:,.10g} an image" in run("match", out, shifted).stdout
    other = json.loads(run("match", out, shifted, "--rule", "nearest", "--json").stdout)
    assert other["matches"] != shown["matches"]


def test_epsilon_is_never_shown_without_that_of_the_image(run: Any, image: Path, tmp_path: Path) -> None:
    shown = run("privatize", image, "--out", tmp_path / "x.veil", *subset(epsilon=7.25)).stdout
    n = len(fv.load(tmp_path / "x.veil"))
    lines = [line for line in shown.splitlines() if "7.25" in line]
    assert lines == [
        f"guarantee  local-dp: epsilon 7.25 a descriptor, {7.25 * n:,g} for an image of {n:,} (they add up)"
    ]
    assert "a blind guess" in shown


@pytest.mark.parametrize("defense", ["metric", "naive"])
def test_the_other_mechanisms(run: Any, image: Path, shifted: Path, tmp_path: Path, defense: str) -> None:
    out = tmp_path / "x.veil"
    result = run(
        "privatize", image, "--out", out, "--defense", defense, "--epsilon", 20, "--max-features", 60, "--json"
    )
    assert result.exit_code == 0, result.output
    kind = {"metric": "metric-dp", "naive": "local-dp"}[defense]
    assert json.loads(result.stdout)["guarantee"]["kind"] == kind
    assert run("match", out, shifted).exit_code == 0


def test_an_own_codebook_is_needed_on_both_sides(
    run: Any, refused: Any, image: Path, shifted: Path, codebook: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.veil"
    digest = fv.load_database(codebook).digest
    assert run("privatize", image, "--out", out, *subset("--codebook", codebook)).exit_code == 0
    assert "not the built-in one" in refused("match", out, shifted)
    assert run("match", out, shifted, "--codebook", codebook).exit_code == 0
    fv.save_database(fv.builtin("sift"), tmp_path / "other.safetensors")
    assert digest[:12] in refused("match", out, shifted, "--codebook", tmp_path / "other.safetensors")
    assert "neither side has any" in refused("match", image, shifted, "--codebook", codebook)
    wrong = ("--codebook", codebook, "--codebook-digest", "00ff")
    assert "expected 00ff" in refused("privatize", image, "--out", tmp_path / "y.veil", *subset(*wrong))


def test_bad_settings(refused: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    command = ("privatize", image, "--out", tmp_path / "x.veil")
    assert "above 0" in refused(*command, *subset(epsilon=0))
    assert "above 0" in refused(*command, *subset(epsilon="nan"))
    assert "infinite epsilon" in refused(*command, *subset(epsilon="inf"))
    assert "at most 1000" in refused(*command, *subset(epsilon=1e6))
    assert "from 1 to 1024" in refused(*command, *subset("--subset-size", 0))
    assert "from 1 to 1024" in refused(*command, *subset("--subset-size", 16384))
    assert "needs --epsilon" in refused(*command, "--defense", "subset")
    assert "--dimension does not belong to subset" in refused(*command, *subset("--dimension", 4))
    assert "--epsilon does not belong to lifting" in refused(*command, "--epsilon", 10)
    assert "--database does not belong to naive" in refused(
        *command, "--defense", "naive", "--epsilon", 10, "--database", image
    )
    assert "unknown rule" in refused("match", _words(tmp_path), shifted, "--rule", "bogus")
    assert "geometrically" in refused("match", _words(tmp_path), shifted, "--ratio", 0.8)
    assert not (tmp_path / "x.veil").exists()


def _words(folder: Path) -> Path:
    sets = fv.WordSets(np.array([[1, 2]]), fv.builtin("sift").digest, 16384)
    keypoints = fv.Keypoints(np.zeros((1, 2), np.float32))
    fv.save(
        fv.PrivateFeatures(sets, "sift", {"name": "subset"}, fv.Guarantee("local-dp", 1.0), keypoints),
        folder / "w.veil",
    )
    return folder / "w.veil"


def test_a_word_outside_the_codebook_is_refused(refused: Any, shifted: Path, tmp_path: Path) -> None:
    path = _words(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(np.array([1, 2], "<i4").tobytes(), np.array([1, 16384], "<i4").tobytes()))
    assert path.read_bytes() != content
    assert "outside the codebook" in refused("match", path, shifted)


def test_a_release_is_charged_before_it_is_written(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    account = ("--ledger", ledger, "--subject", "ann")
    first = ("privatize", image, "--out", tmp_path / "1.veil", *subset(epsilon=1), *account)
    assert "does not exist" in refused(*first)
    assert run("ledger", "set-budget", ledger, "ann", 10).exit_code == 0
    assert "10 is left" in refused(*first)
    assert not (tmp_path / "1.veil").exists()
    n = len(fv.extract(image, max_features=2048))
    fv.Ledger(ledger).set_budget("ann", 1.5 * n)
    result = run(*first, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["budget_left"] == 0.5 * n
    assert f"{0.5 * n:g} is left" in refused(*first, "--overwrite")
    history = json.loads(run("ledger", "show", ledger, "--json").stdout)["history"]
    releases = [entry for entry in history if entry["event"] == "release"]
    assert [(entry["epsilon"], entry["label"]) for entry in releases] == [(n, image.name)]


@pytest.mark.parametrize("moment", ["writing", "moving"])
def test_only_a_release_that_fails_in_the_last_step_stays_charged(
    run: Any, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    ledger = fv.Ledger(tmp_path / "ledger.sqlite")
    ledger.set_budget("ann", 10_000)
    real = Path.replace

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def move(self: Path, target: Path) -> Path:
        return full() if Path(target).name == "x.veil" else real(self, target)  # type: ignore[return-value]

    monkeypatch.setattr(Path, *(("write_bytes", full) if moment == "writing" else ("replace", move)))
    command = ("privatize", image, "--out", tmp_path / "x.veil", *subset(epsilon=1), "--ledger", ledger.path)
    result = run(*command, "--subject", "ann")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert not (tmp_path / "x.veil").exists()
    assert ("the ledger was charged" in result.stderr) == (moment == "moving")
    assert ledger.statement("ann")[0].releases == (moment == "moving")


def test_a_budget_that_ends_in_the_middle_of_a_batch(run: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    ledger = fv.Ledger(tmp_path / "ledger.sqlite")
    ledger.set_budget("ann", 50)
    account = ("--ledger", ledger.path, "--subject", "ann", "--max-features", 40)
    result = run("privatize", image, shifted, "--out", tmp_path / "out", *subset(epsilon=1), *account, "--json")
    assert result.exit_code == 1, result.output
    shown = json.loads(result.stdout)
    assert (shown["written"], shown["failed"], shown["budget_left"]) == (1, 1, 10)
    assert f"{shifted.name}: this release costs 'ann'" in result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"{image.name}.veil"]


def test_fewer_features_of_a_feature_file(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    raw = fv.extract(image, max_features=100)
    fv.save(raw, tmp_path / "raw.veil")
    command = ("--out", tmp_path / "x.veil", *subset(), "--max-features", 10)
    assert run("privatize", tmp_path / "raw.veil", *command).exit_code == 0
    private = fv.load(tmp_path / "x.veil")
    assert raw.keypoints is not None and raw.keypoints.response is not None and private.keypoints is not None
    strongest = raw.keypoints.xy[np.argsort(-raw.keypoints.response)[:10]]
    assert sorted(map(tuple, private.keypoints.xy.tolist())) == sorted(map(tuple, strongest.tolist()))
    bare = fv.Features(raw.descriptors, "sift", raw.keypoints.positions_only())
    fv.save(bare, tmp_path / "bare.veil")
    assert "no response" in refused("privatize", tmp_path / "bare.veil", *command, "--overwrite")


def test_ledger_options_that_do_not_fit(refused: Any, image: Path, tmp_path: Path) -> None:
    command = ("privatize", image, "--out", tmp_path / "x.veil")
    assert "go together" in refused(*command, *subset(), "--subject", "ann")
    assert "go together" in refused(*command, *subset(), "--ledger", tmp_path / "l.sqlite")
    both = ("--ledger", tmp_path / "l.sqlite", "--subject", "ann")
    assert "differential privacy" in refused(*command, *both)
