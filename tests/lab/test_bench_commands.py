"""What all of featveil bench have in common that measure photographs: stopping, mistakes, help."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError
from featveil.core.records import Record, append_records, read_records
from featveil.databases import Database, builtin, save_database
from scenes import draw_equal_views

WHAT = {
    "matching": "{scenes}",
    "words": "{scenes}",
    "tradeoff": "{scenes} --codebook {book} --max-features 50",
    "oracle": "{photos} --database {photos}",
    "assumptions": "{photos}",
    "attacks": "{photos} --attacker {book}",
}
# Settings that make it quick, and the number of records.
QUICK = {
    "matching": ("--strategies random --dimensions 2 --max-features 50", 15),
    "words": ("--codebooks {book} --epsilons 12 --subset-sizes 1 --max-features 50 --iterations 500", 25),
    "tradeoff": ("--epsilons 6 --subset-sizes 1 --iterations 500", 45),
    "oracle": ("--images 2 --max-features 40 --database-size 300", 6),
    "assumptions": ("--database {book} --images 2 --max-features 40 --dimensions 2,4", 16),
    "attacks": (
        "--only nearest --strategies random --dimensions 2 --epsilons 8 --subset-sizes 2 --metric-epsilons none"
        " --images 2 --max-features 40 --sample 10",
        10,
    ),
}
MISTAKES = {
    "matching": [
        ("--dimensions", "2,x", "--dimensions must be whole numbers"),
        ("--dimensions", ",", "names nothing"),
        ("--strategies", "best", "unknown lifting strategy"),
        ("--seed", "-1", "seed"),
        ("--kind", "orb", "orb"),
    ],
    "words": [
        ("--epsilons", "10,x", "--epsilons must be numbers"),
        ("--epsilons", "inf", "always there"),
        ("--epsilons", "-1", "above 0"),
        ("--subset-sizes", "2.5", "--subset-sizes must be whole numbers"),
        ("--subset-sizes", "0", "subset_size"),
        ("--nearest-sizes", ",", "names nothing"),
        ("--codebooks", "nowhere.safetensors", "no database file"),
        ("--iterations", "0", "iterations"),
        ("--kind", "orb", "orb"),
    ],
    "tradeoff": [
        ("--epsilons", "10,x", "--epsilons must be numbers"),
        ("--epsilons", "inf", "always there"),
        ("--epsilons", "60", "use other epsilons"),
        ("--subset-sizes", "2.5", "--subset-sizes must be whole numbers"),
        ("--subset-sizes", ",", "names nothing"),
        ("--subset-sizes", "300", "subset_size"),
        ("--codebook", "nowhere.safetensors", "no database file"),
        ("--iterations", "0", "iterations"),
        ("--kind", "rootsift", "rootsift"),
    ],
    "oracle": [
        ("--kinds", ",", "names nothing"),
        ("--kinds", "orb", "orb"),
        ("--strategy", "hybrid+", "attribute labels"),
        ("--dimension", "0", "dimension"),
        ("--images", "0", "at least one photograph"),
        ("--database-size", "0", "at least one descriptor"),
        ("--seed", "-1", "seed"),
    ],
    "assumptions": [
        ("--dimensions", "2,x", "--dimensions must be whole numbers"),
        ("--dimensions", "0", "dimension"),
        ("--strategy", "random", "draws no entry"),
        ("--strategy", "hybrid+", "attribute labels"),
        ("--database", "nowhere", "nowhere"),
        ("--images", "0", "at least one photograph"),
        ("--kind", "orb", "orb"),
        ("--seed", "-1", "seed"),
    ],
    "attacks": [
        ("--only", "all", "unknown attack 'all'"),
        ("--strategies", "best", "unknown lifting strategy"),
        ("--dimensions", "2,x", "--dimensions must be whole numbers"),
        ("--epsilons", "10,x", "--epsilons must be numbers"),
        ("--metric-epsilons", "-1", "above 0"),
        ("--attacker", "nowhere", "one database file, or folders"),
        ("--kind", "orb", "orb"),
        ("--seed", "-1", "seed"),
    ],
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data set of one scene, which is six equal random textures; the folder of these; and a small database."""
    folder = tmp_path_factory.mktemp("bench")
    draw_equal_views(folder / "drawn" / "i_same")
    save_database(Database(builtin("sift").values[:300], "sift", 1), folder / "few.safetensors")
    return {"scenes": folder / "drawn", "photos": folder / "drawn" / "i_same", "book": folder / "few.safetensors"}


def invoke(command: str, arguments: str, *more: object) -> Result:
    return CliRunner().invoke(app, [command, *arguments.split(), *(str(argument) for argument in more)])


@pytest.mark.parametrize("command", QUICK)
def test_ctrl_c_keeps_what_was_measured(
    command: str, drawn: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, count = QUICK[command]
    arguments, path = f"{WHAT[command]} {settings} --out {tmp_path / 'o'}".format(**drawn), tmp_path / "o/records.jsonl"
    left = [4]

    def stop_at_fifth(target: Path, records: list[Record]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        append_records(target, records)

    with monkeypatch.context() as patch:
        patch.setattr("featveil.core.resuming.append_records", stop_at_fifth)
        result = invoke(command, arguments)
    assert result.exit_code == 130, result.output
    assert "goes on from" in result.stderr
    before = read_records(path)
    assert len(before) == 4
    assert invoke(command, arguments).exit_code == 0
    after = read_records(path)
    assert after[:4] == before and len(after) == count


@pytest.mark.parametrize(
    ("command", "option", "value", "message"), [(name, *each) for name, all_of in MISTAKES.items() for each in all_of]
)
def test_mistakes_are_named_before_anything_is_written(
    command: str, option: str, value: str, message: str, drawn: dict[str, Path], tmp_path: Path
) -> None:
    result = invoke(command, WHAT[command].format(**drawn), "--out", tmp_path / "o", option, value)
    assert isinstance(result.exception, InputError), result.output
    assert message in str(result.exception)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("command", WHAT)
def test_help_has_an_example_and_says_that_it_can_be_stopped(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert f"featveil bench {command}" in text
    assert "goes on where it stopped" in text
