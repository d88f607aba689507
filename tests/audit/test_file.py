"""Audit files: what they ask for, and that every mistake is named with its place and what would be right."""

import re
from pathlib import Path

import pytest

from featveil.audit.file import read_audit_file
from featveil.audit.request import Request, built_in_request
from featveil.core import InputError
from featveil.databases import Database, builtin, save_database
from featveil.datasets.private_content import BUNDLED
from featveil.defenses import STRATEGIES
from featveil.registry import ATTACKS, DEFENSES


def read(tmp_path: Path, text: str) -> Request:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    return read_audit_file(path)


def private_of(tmp_path: Path, text: str) -> Path | None:
    return read(tmp_path, text).private


def names(request: Request) -> list[str]:
    return [scheme.name for scheme in request.schemes]


def test_everything_can_be_said(tmp_path: Path) -> None:
    for folder in ("photos", "attacker", "pool"):
        (tmp_path / folder).mkdir()
    request = read(
        tmp_path,
        """
        kind = "rootsift"
        max_features = 300
        sample = 20
        seeds = [3, 1]
        attacker = {photos = ["attacker"], size = 99}
        pool = {photos = ["pool"]}
        [[dataset]]
        folder = "photos"
        images = 2
        [[scheme]]
        name = "subset"
        epsilon = 10
        geometry = true
        [[attack]]
        name = "overlap"
        rounds = 5
        """,
    )
    settings = request.settings
    assert (settings.kind, settings.max_features, settings.sample, settings.seeds) == ("rootsift", 300, 20, (3, 1))
    assert request.attacker.photos == (tmp_path / "attacker",) and request.attacker.size == 99
    assert request.pool == (tmp_path / "pool",)
    (source,) = request.sources
    assert (source.folder, source.name, source.images) == (tmp_path / "photos", "photos", 2)
    assert names(request) == ["identity", "subset-10-2-geometry"]
    assert request.schemes[1].geometry and not request.schemes[1].apart
    assert request.schemes[1].defense.spec()["codebook"] == builtin("rootsift").digest
    assert [method.name for method in request.methods] == ["chance", "read", "overlap"]
    assert request.methods[2].rounds == 5  # type: ignore[attr-defined]


def test_what_is_left_out_has_its_usual_value(tmp_path: Path) -> None:
    request, usual = read(tmp_path, "sample = 50"), built_in_request()
    assert names(request) == names(usual) and request.settings.seeds == (0,) and request.sources == ()
    assert [method.name for method in request.methods] == list(ATTACKS)
    assert "hardened-4-16-apart" in names(usual) and "identity-apart" in names(usual)


def test_a_list_stands_for_one_scheme_for_each_value(tmp_path: Path) -> None:
    text = """
    [[scheme]]
    name = "lifting"
    strategy = ["sub-hybrid", "random"]
    dimension = [2, 4]
    [[scheme]]
    name = "hardened"
    confounders = [2, 4]
    keypoints = ["all", "apart"]
    """
    assert names(read(tmp_path, text)) == [
        *("identity", "identity-apart", "sub-hybrid-2", "sub-hybrid-4", "random-2", "random-4"),
        *("hardened-2-16", "hardened-2-16-apart", "hardened-4-16", "hardened-4-16-apart"),
    ]


def test_a_database_is_named_by_its_file_and_tells_schemes_apart(tmp_path: Path) -> None:
    own = Database(builtin().values[:200], "sift")
    save_database(own, tmp_path / "own.safetensors")
    text = '[[scheme]]\nname = "lifting"\n[[scheme]]\nname = "lifting"\ndatabase = "own.safetensors"\n'
    text += '[[scheme]]\nname = "lifting"\nrandom_share = 0.25\n'
    request = read(tmp_path, text)
    assert names(request) == ["identity", "sub-hybrid-4", f"sub-hybrid-4-{own.digest[:8]}", "sub-hybrid-4-random-1"]
    assert request.schemes[2].defense.spec()["database"] == own.digest


def test_a_file_that_several_schemes_share_is_read_once(tmp_path: Path) -> None:
    save_database(Database(builtin().values[:200], "sift"), tmp_path / "own.safetensors")
    text = '[[scheme]]\nname = "lifting"\ndatabase = "own.safetensors"\ndimension = [2, 4]\n'
    _, two, four = read(tmp_path, text).schemes
    assert two.defense.database is four.defense.database  # type: ignore[attr-defined]


def test_an_attacker_may_have_a_database_file(tmp_path: Path) -> None:
    save_database(Database(builtin().values[:50], "sift"), tmp_path / "own.safetensors")
    request = read(tmp_path, '[attacker]\ndatabase = "own.safetensors"')
    assert request.attacker.database == tmp_path / "own.safetensors"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: an audit file has some of kind, max_features"),
        ("# nothing\n", "is empty"),
        ("kind = ", "is not TOML"),
        ("sample = 99999999999999999999", "whole number has at most 64 bits"),
        (f"seeds = [[0x{'f' * 5000}]]", "whole number has at most 64 bits"),
        (f"sample = {'9' * 5000}", "is not TOML"),
        ("kind = ['sift']", "unknown descriptor kind .*: use one of sift, rootsift"),
        ("kind = 1979-05-27", "unknown descriptor kind"),
        ("[[scheme]]\nname = 'subset'\nepsilon = nan", "scheme 1: epsilon must be a number above 0"),
        ("schemes = 1", "unknown key 'schemes': use some of kind, max_features, sample, seeds, attacker, pool"),
        ('kind = "surf"', "unknown descriptor kind 'surf': use one of sift, rootsift"),
        ("max_features = 0", "max_features must be a whole number of at least 1, got 0"),
        ("max_features = true", "max_features must be a whole number"),
        ("sample = 1.5", "sample must be a whole number"),
        ("seeds = []", "seeds names none"),
        ("seeds = 1", "seeds must be a list, got 1"),
        ("seeds = [-1]", "seed must be a whole number of at least 0 and below .*, got -1"),
        ("seeds = [true]", "seed must be a whole number of at least 0 and below .*, got True"),
        ("seeds = [1, 1]", "seeds 1 is there twice"),
        ("[dataset]\nfolder = '.'", r"dataset must be tables: write \[\[dataset\]\]"),
        ("[[dataset]]", "dataset 1: folder is missing"),
        ("[[dataset]]\nfolder = 'nowhere'", "dataset 1: .*nowhere is not a folder"),
        ("[[dataset]]\nfolder = '.'\nimages = 0", "dataset 1: images must be a whole number of at least 1"),
        ("[[dataset]]\nfolder = '.'\nname = 3", "dataset 1: name must be text, got 3"),
        ("[[dataset]]\nfolder = '.'\nimage = 1", "dataset 1: unknown key 'image': use some of folder, name, images"),
        ("[[dataset]]\nfolder = '.'\n[[dataset]]\nfolder = '.'", "dataset .* is there twice"),
        ("[[scheme]]", "scheme 1: name is missing"),
        ("[[scheme]]\nname = 'identity'\n[[scheme]]\nname = 'mask'", f"scheme 2: .* one of {', '.join(DEFENSES)}"),
        ("[[scheme]]\nname = 'subset'", "scheme 1: subset needs epsilon"),
        ("[[scheme]]\nname = 'subset'\nepsilon = -1", "scheme 1: epsilon must be a number above 0"),
        ("[[scheme]]\nname = 'subset'\nepsilon = 'much'", "scheme 1: epsilon must be a number, got 'much'"),
        ("[[scheme]]\nname = 'lifting'\nstrategy = 'x'", f"scheme 1: .* one of {re.escape(', '.join(STRATEGIES))}"),
        ("[[scheme]]\nname = 'lifting'\ndimension = true", "scheme 1: dimension must be a whole number, got True"),
        ("[[scheme]]\nname = 'lifting'\ndimension = []", "scheme 1: dimension is an empty list"),
        ("[[scheme]]\nname = 'lifting'\ndimension = [4, 4]", "scheme 1: scheme sub-hybrid-4 is there twice"),
        ("[[scheme]]\nname = 'lifting'\n[[scheme]]\nname = 'lifting'", "scheme 2: scheme sub-hybrid-4 is there twice"),
        ("[[scheme]]\nname = 'lifting'\nepsilon = 4", "scheme 1: unknown key 'epsilon': use some of name, strategy"),
        ("[[scheme]]\nname = 'lifting'\ndatabase = 7", "scheme 1: database must be"),
        ("[[scheme]]\nname = 'lifting'\ndatabase = 'no'", "scheme 1: there is no database file"),
        ("[[scheme]]\nname = 'hardened'\npool = 'p'", "scheme 1: unknown key 'pool'"),
        ("[[scheme]]\nname = 'lifting'\nkeypoints = 'few'", "scheme 1: unknown keypoints 'few': use one of all, apart"),
        ("[[scheme]]\nname = 'lifting'\ngeometry = 1", "scheme 1: geometry must be true or false, got 1"),
        ("[[attack]]\nname = 'guess'", "attack 1: unknown attack 'guess': use one of .*lattice"),
        ("[[attack]]\nname = 'vertex'\nrounds = '2'", "attack 1: rounds must be a whole number, got '2'"),
        ("[[attack]]\nname = 'vertex'\nspeed = 2", "attack 1: unknown key 'speed': use some of name, walkers, rounds"),
        ("[[attack]]\nname = 'vertex'\n[[attack]]\nname = 'vertex'", "attack vertex is there twice"),
        ("attacker = 3", r"attacker must be a table: write \[attacker\]"),
        ("[attacker]\nphotos = []", "attacker: photos must be a list of folders"),
        ("[attacker]\nphotos = ['nowhere']", "attacker: .*nowhere is not a folder"),
        ("[attacker]\nphotos = ['.', '.']", "attacker: folder . is there twice"),
        ("[attacker]\ndatabase = 'no'", "attacker: there is no database file"),
        ("[attacker]\nsize = 0", "attacker: size must be a whole number of at least 1"),
        ("[attacker]\nphoto = 'x'", "attacker: unknown key 'photo': use some of photos, database, size"),
        ("[pool]\nsize = 3", "pool: unknown key 'size': use some of photos"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read(tmp_path, text)
    assert "audit.toml" in str(refused.value)


def test_an_attacker_has_photographs_or_a_database(tmp_path: Path) -> None:
    save_database(Database(builtin().values[:50], "sift"), tmp_path / "own.safetensors")
    with pytest.raises(InputError, match="name one of the two"):
        read(tmp_path, "[attacker]\nphotos = ['.']\ndatabase = 'own.safetensors'")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read audit file"):
        read_audit_file(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not TOML"):
        read_audit_file(tmp_path / "bytes.toml")


def test_private_content_is_bundled_a_folder_or_none(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    assert private_of(tmp_path, "sample = 5") == BUNDLED
    assert private_of(tmp_path, 'private = "none"') is None
    assert private_of(tmp_path, 'private = "faces"') == tmp_path / "faces"


@pytest.mark.parametrize("value", ['"missing"', "3", "true"])
def test_other_private_content_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match="private"):
        read(tmp_path, f"private = {value}")


def test_gates_have_names_of_what_is_unusual_in_them(tmp_path: Path) -> None:
    text = """
        [[scheme]]
        name = "gate"
        tau = [0.3, 0.35]
        support = ["none", "both"]
        [[scheme]]
        name = "gate"
        candidates = 1
        then = [{ name = "subset", epsilon = 10 }, { name = "lifting", dimension = 4 }, { name = "identity" }]
        """
    assert names(read(tmp_path, text)) == [
        "identity",
        "gate-0.3",
        "gate-0.3-both",
        "gate-0.35",
        "gate-0.35-both",
        "gate-candidates-1-subset-10-2",
        "gate-candidates-1-sub-hybrid-4",
        "gate-candidates-1-identity",
    ]


@pytest.mark.parametrize("option", ['sketch = "place.sketch"', 'signer = "key.pub"'])
def test_the_sketch_of_an_audit_is_its_own(tmp_path: Path, option: str) -> None:
    with pytest.raises(InputError, match=r"scheme 1.*unknown key.*second views"):
        read(tmp_path, f'[[scheme]]\nname = "gate"\n{option}')


def test_a_gate_with_hardened_lifting_has_no_pool_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pool"):
        read(tmp_path, '[[scheme]]\nname = "gate"\nthen = { name = "hardened", confounders = 2, dimension = 4 }')


def test_the_usual_schemes_have_gates() -> None:
    assert {"gate", "gate-both", "gate-subset-10-2"} < set(names(built_in_request()))
