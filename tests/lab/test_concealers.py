"""A study of concealers: three tasks on the same networks under the same names, into one file of records."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import ConcealingNetwork, InputError
from featveil.core.records import Record, read_records
from featveil.databases import builtin
from featveil.datasets import load_hpatches, load_phototour
from featveil.defenses import Concealer
from featveil.extractors import SiftDescriber
from featveil.lab import scenes
from featveil.lab.concealers import ConcealerStudy, check_networks, described_by, inverted_schemes
from featveil.lab.inversion_photos import read_photographs
from featveil.lab.inversion import Experiment, Settings
from featveil.lab.patches import Settings as PatchSettings
from featveil.lab.patches import Sources as PatchSources
from featveil.learning.encodings import Encoding
from featveil.pipelines.invert import Painter
from networks import identity_network, random_network
from painters import grey_painter
from patch_sets import write_patches
from photographs import write_photographs
from scenes import draw_turned_views

NETWORKS = (identity_network(), random_network(rank=0))


def painter_of(network: ConcealingNetwork, architecture: str = "unet") -> Painter:
    """An inverter that was trained, as its card says, on what a network gives."""
    spec = Concealer(network).for_kind("sift").spec()
    name = f"{network.name}-{architecture}.onnx"
    return grey_painter(Encoding(network.concealed_kind), spec, name, architecture=architecture)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences, a patch set and photographs. Do not change them."""
    made = tmp_path_factory.mktemp("data")
    for number in range(2):
        draw_turned_views(made / "drawn" / f"v_{number}", seed=number)
    write_patches(made / "patches")
    write_photographs(made / "photos", test=2)
    return made


@pytest.fixture
def study(folder: Path) -> Any:
    """A study, with other parts where they are given."""

    def make(**given: Any) -> ConcealerStudy:
        files = {path.name: path for path in (folder / "photos").iterdir()}
        settings = Settings("sift", 40)
        direct = [painter_of(NETWORKS[0]), painter_of(NETWORKS[0], "uresnet"), painter_of(NETWORKS[1])]
        inverted = Study(
            "photos",
            read_photographs(files, 2, "sift", 40),
            inverted_schemes(NETWORKS, "sift"),
            (),
            grey_painter(),
            builtin(),
            given.pop("direct", direct),
            settings=settings,
        )
        sources = PatchSources(load_hpatches(folder / "drawn"), [load_phototour(folder / "patches")])
        parts = {
            "networks": NETWORKS,
            "describer": SiftDescriber(),
            "sources": sources,
            "patch_settings": PatchSettings(20, 200, 10),
            "matching_settings": scenes.Settings(max_features=100),
            "database": builtin(),
            "study": inverted,
        }
        return ConcealerStudy(**{**parts, **given})

    return make


def of_scheme(records: list[Record], scheme: str) -> list[Any]:
    return [record.value for record in records if record.scheme == scheme]


def test_every_task_knows_the_networks_by_one_name(study: Any, tmp_path: Path) -> None:
    made, path = study(), tmp_path / "records.jsonl"
    patches, matched, inverted = made.patches(path), made.matching(path), made.inversion(tmp_path)
    names = {network.name for network in NETWORKS}
    assert {record.scheme for record in patches} == {"raw", "chance", *names}
    assert {record.scheme for record in matched} == {"raw", "sub-hybrid-2", *names}
    assert {record.scheme for record in inverted} == {"identity", *names}
    assert {record.attack for record in inverted if record.scheme == NETWORKS[0].name} == {"direct", "direct (uresnet)"}
    assert {record.attack for record in inverted if record.scheme == NETWORKS[1].name} == {"direct"}
    assert len(read_records(path)) == len(patches) + len(matched) + len(inverted)
    same, blind = (network.name for network in NETWORKS)
    assert of_scheme(patches, same) == pytest.approx(of_scheme(patches, "raw"), abs=1e-4)
    assert np.mean(of_scheme(matched, same)) > np.mean(of_scheme(matched, blind)) + 0.5
    before = path.read_bytes()
    assert (made.patches(path), made.matching(path), made.inversion(tmp_path)) == (patches, matched, inverted)
    assert path.read_bytes() == before


def test_an_inverter_of_another_network_is_refused(study: Any) -> None:
    with pytest.raises(InputError, match=r"was trained on concealer-1 with network .*, which no scheme here sends"):
        study(direct=[painter_of(random_network(seed=5))])


def test_networks_that_cannot_be_studied_together() -> None:
    check_networks(NETWORKS, "sift")
    with pytest.raises(InputError, match="conceals sift descriptors, not rootsift"):
        check_networks(NETWORKS, "rootsift")
    with pytest.raises(InputError, match="was named twice"):
        check_networks([*NETWORKS, NETWORKS[0]], "sift")


def test_matching_needs_sequences(study: Any, folder: Path) -> None:
    with pytest.raises(InputError, match="give a folder of scenes"):
        study(sources=PatchSources(None, [load_phototour(folder / "patches")]))


def test_photographs_are_described_again(folder: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    torch.manual_seed(0)
    torch.save(HardTFeat().state_dict(), tmp_path / "a.pth")
    files = {path.name: path for path in (folder / "photos").iterdir()}
    plain = read_photographs(files, 1, "sift", 30)
    learned = described_by(plain, Settings("hardtfeat", 30, weights=tmp_path / "a.pth"))
    assert [one.features.kind for one in learned] == ["hardtfeat"]
    assert plain[0].features.keypoints is not None and learned[0].features.keypoints is not None
    assert np.array_equal(learned[0].features.keypoints.xy, plain[0].features.keypoints.xy)
    assert replace(learned[0], features=plain[0].features).digest == plain[0].digest
