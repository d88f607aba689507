"""featveil subset plan / audit."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import featveil as fv
from drawings import drawing
from featveil.cli import Commands, subset
from featveil.core import InputError
from featveil.databases import Database, builtin, save_database
from featveil.defenses.subset import subset_coin
from featveil.pipelines.subset import parse_size


@pytest.fixture
def run() -> Any:
    """Run `featveil subset ARGUMENTS...`."""
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    app.add_typer(subset.app, name="subset")
    app.command("other")(lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["subset", *(str(argument) for argument in arguments)])


@pytest.fixture(autouse=True)
def repeatable_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit errs with 5 % at most, which is too often for a test."""
    seeds = itertools.count()
    monkeypatch.setattr(
        "featveil.pipelines.subset_parts.sampler_audit.SecureRandomness", lambda: np.random.default_rng(next(seeds))
    )


@pytest.fixture
def codebook(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    made = Database.from_array(rng.random((20, 128)), "sift", parts=1, rng=rng)
    save_database(made, tmp_path / "words.safetensors")
    return tmp_path / "words.safetensors"


@pytest.mark.parametrize(
    ("text", "size"),
    [("256000", 256_000), ("256k", 256_000), ("1K", 1000), ("2^1024", 2**1024), ("10^3", 1000), (" 2^4096 ", 2**4096)],
)
def test_codebook_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "many", "-5", "1.5k", "2^", "2^-1", "2^k", "2^4097", "9^999999", "2^2^2", "9" * 1400]
)
def test_other_codebook_sizes_are_refused(refused: Any, text: str) -> None:
    with pytest.raises(InputError, match="--codebook-size"):
        parse_size(text)
    assert len(refused("plan", "--epsilon", 1, "--codebook-size", text)) < 200


def test_plan_of_a_size(run: Any) -> None:
    result = run("plan", "--epsilon", 10, "--codebook-size", "256k")
    assert result.exit_code == 0, result.output
    assert "epsilon 10 per descriptor, 20,480 per image of 2,048 features; codebook of 256,000 words" in result.stdout
    assert re.search(r"^2 +14.7 % +7.34 % +301 +90.2 % +fair", result.stdout, re.MULTILINE)
    assert "bounds nothing by itself; the bound that holds is per descriptor" in result.stdout
    marked = run("plan", "--epsilon", 10, "--codebook-size", "256k", "--subset-sizes", "12,2").stdout
    assert marked.index("\n2 ") < marked.index("\n12 ")


def test_plan_says_where_the_guarantee_is_weak(run: Any) -> None:
    text = run("plan", "--epsilon", 16, "--codebook-size", "256000").stdout
    assert "k = 1: weak: whoever guesses the word is right 97.2 % of the time" in text


def test_plan_as_json(run: Any) -> None:
    made = json.loads(run("plan", "--epsilon", 10, "--codebook-size", "256k", "--features", 100, "--json").stdout)
    assert (made["epsilon"], made["epsilon_per_image"], made["features"]) == (10, 1000, 100)
    assert [row["subset_size"] for row in made["rows"]] == [1, 2, 4, 8, 16, 32]
    assert made["rows"][0]["best_guess"] == pytest.approx(0.0792, abs=1e-4)
    assert all(row["epsilon_per_image"] == 1000 for row in made["rows"])
    assert made["quantization"] is None


@pytest.mark.parametrize("size", ["2^1024", "2^4096"])
def test_plan_of_all_descriptors_there_can_be(run: Any, size: str) -> None:
    result = run("plan", "--epsilon", 10, "--codebook-size", size)
    assert result.exit_code == 0, result.output
    assert f"codebook of {size} words" in result.stdout
    made = json.loads(run("plan", "--epsilon", 10, "--codebook-size", size, "--json").stdout)
    assert made["codebook_size"] == parse_size(size)


def test_plan_without_a_guarantee(run: Any) -> None:
    arguments = ("plan", "--epsilon", "inf", "--codebook-size", "256k")
    assert "quantisation only, no guarantee" in run(*arguments).stdout
    made = json.loads(run(*arguments, "--json").stdout, parse_constant=pytest.fail)
    assert made["epsilon"] is made["epsilon_per_image"] is made["rows"][0]["epsilon_per_image"] is None


def test_plan_of_a_codebook_and_images(run: Any, image: Path, shifted: Path, codebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fv.save(fv.extract(shifted, max_features=30), tmp_path / "b.veil")
    arguments = ["plan", "--epsilon", 4, "--images", image, tmp_path / "b.veil", "--max-features", 50]
    result = run(*arguments, "--picture", tmp_path / "plan.png")
    assert result.exit_code == 0, result.output
    assert "codebook of 16,384 words" in result.stdout
    assert "160 per image of 40 features" in result.stdout
    assert "80 descriptors of 2 images" in result.stdout
    assert f"wrote {tmp_path / 'plan.png'}" in result.stdout
    assert drawing(tmp_path / "plan.png").any()
    own = json.loads(run(*arguments, "--codebook", codebook, "--features", 7, "--json").stdout)
    assert (own["codebook_size"], own["features"], own["quantization"]["images"]) == (20, 7, 2)
    assert [row["subset_size"] for row in own["rows"]] == [1, 2, 4, 8, 16]
    assert own["quantization"]["mean"] > json.loads(run(*arguments, "--json").stdout)["quantization"]["mean"]


def test_plan_of_the_built_in_codebook(run: Any) -> None:
    made = json.loads(run("plan", "--epsilon", 4, "--json").stdout)
    assert (made["codebook_size"], made["features"]) == (len(builtin()), 2048)


def test_plan_refuses(refused: Any, image: Path, empty: Path, codebook: Path, tmp_path: Path) -> None:
    command = ("plan", "--epsilon", 4)
    private = fv.privatize(fv.extract(image, max_features=20), fv.Lifting())
    fv.save(private, tmp_path / "private.veil")
    fv.save(fv.extract(image, "rootsift", 20), tmp_path / "root.veil")
    assert "epsilon must be" in refused("plan", "--epsilon", -1)
    assert "epsilon must be" in refused("plan", "--epsilon", "nan")
    assert "--epsilon" in refused("plan")
    assert "whole numbers" in refused(*command, "--subset-sizes", "1,x")
    assert "--subset-sizes" in refused(*command, "--subset-sizes", ",")
    assert "subset sizes" in refused(*command, "--subset-sizes", "0")
    assert "1 to 19" in refused(*command, "--codebook", codebook, "--subset-sizes", "20")
    assert "leave out" in refused(*command, "--codebook-size", "9", "--codebook", codebook)
    assert "leave out" in refused(*command, "--codebook-size", "9", "--images", image)
    assert "no database file" in refused(*command, "--codebook", tmp_path / "no.safetensors")
    assert "no.png" in refused(*command, "--images", tmp_path / "no.png")
    assert "no features" in refused(*command, "--images", empty)
    assert "private already" in refused(*command, "--images", tmp_path / "private.veil")
    assert "use a rootsift codebook" in refused(*command, "--images", tmp_path / "root.veil")
    assert "end in .png" in refused(*command, "--picture", tmp_path / "plan.pdf")
    assert "is an input" in refused(*command, "--images", image, "--picture", image)
    assert "create it first" in refused(*command, "--picture", tmp_path / "no" / "plan.png")


def test_audit_passes(run: Any, codebook: Path) -> None:
    result = run("audit", "--epsilon", 2, "--codebook", codebook, "--trials", 20_000, "--features", 10)
    assert result.exit_code == 0, result.output
    found = re.search(r"leaks at least ([\d.]+) per descriptor, ([\d.]+) per image of 10 features", result.stdout)
    assert found is not None
    assert 1.6 < float(found[1]) <= 2
    assert float(found[2]) == pytest.approx(10 * float(found[1]), rel=1e-3)
    assert "(95 % confidence);\n2 per descriptor, 20 per image, is claimed." in result.stdout
    assert "not a proof" in result.stdout
    assert "Too few" not in result.stdout and "more than it claims" not in result.stdout


def test_audit_as_json(run: Any) -> None:
    result = run("audit", "--epsilon", 6, "--subset-size", 4, "--trials", 1000, "--json")
    made = json.loads(result.stdout)
    assert (made["claimed"], made["claimed_per_image"], made["features"]) == (6, 6 * 2048, 2048)
    assert made["bound_per_image"] == made["bound"] * 2048
    assert made["holds"] and made["effective"] == pytest.approx(6)
    assert len(made["events"]) == 6


def test_audit_says_how_many_trials_would_do(run: Any) -> None:
    text = run("audit", "--epsilon", 10, "--trials", 1000).stdout
    assert "Too few sets" in text and "--trials 302194," in text
    assert "use a smaller epsilon or codebook" in run("audit", "--epsilon", 90, "--trials", 1000).stdout


def test_audit_of_a_faulty_sampler_fails(run: Any, codebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = lambda epsilon, *sizes: subset_coin(epsilon + 1, *sizes)  # noqa: E731
    monkeypatch.setattr("featveil.defenses.subset.subset_coin", faulty)
    arguments = ("audit", "--epsilon", 1, "--codebook", codebook, "--trials", 20_000)
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert "leaks more than it claims" in result.stdout
    again = run(*arguments, "--json")
    assert (again.exit_code, json.loads(again.stdout)["holds"]) == (1, False)


def test_audit_refuses(refused: Any, codebook: Path, tmp_path: Path) -> None:
    assert "infinite" in refused("audit", "--epsilon", "inf")
    assert "epsilon must be" in refused("audit", "--epsilon", 0)
    assert "from 1 to 1024" in refused("audit", "--epsilon", 1, "--subset-size", 0)
    assert "10,000,000,000" in refused("audit", "--epsilon", 1, "--trials", 10**14)
    assert "1 to 19" in refused("audit", "--epsilon", 1, "--subset-size", 20, "--codebook", codebook)
    assert "--trials" in refused("audit", "--epsilon", 1, "--trials", 1)
    assert "no database file" in refused("audit", "--epsilon", 1, "--codebook", tmp_path / "no.safetensors")


@pytest.mark.parametrize("command", ["plan", "audit"])
def test_help_has_an_example(run: Any, command: str) -> None:
    assert f"featveil subset {command} --epsilon" in " ".join(run(command, "--help").stdout.split())
