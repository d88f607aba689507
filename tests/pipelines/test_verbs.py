"""Verbs as Python calls them: a request in, a result out, nothing printed, and nothing heavy imported before."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import featveil as fv
from face_sets import population
from featveil.databases import load_database
from featveil.datasets.board import views
from featveil.datasets.face_sets import save_faces
from featveil.formats.veil import save
from featveil.pipelines.adversary import AdversaryFiles
from featveil.pipelines.attack import AttackRequest, attack, keeps
from featveil.pipelines.build_database import DatabaseRequest, build_database
from featveil.pipelines.build_patches import PatchesRequest, build_patches
from featveil.pipelines.face import EnrollRequest, FaceChoice, IdentifyRequest, StoreRequest, create_store, enroll
from featveil.pipelines.face import identify as identify_face
from featveil.pipelines.fill_pool import PoolAddition, PoolRequest, add_to_pool, create_pool
from featveil.pipelines.invert import InvertRequest, invert
from featveil.pipelines.subset import SubsetAuditRequest, SubsetPlanRequest, audit_sampler, plan_subset

LIGHT = (
    "adversary",
    "attack",
    "build_database",
    "build_patches",
    "face",
    "fill_pool",
    "invert",
    "sketch",
    "sources",
    "subset",
)
TRAINING = ("train",)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A private file, and the raw one beside it."""
    raw = fv.extract(views()[0], max_features=40)
    save(raw, tmp_path / "raw.veil")
    save(fv.privatize(raw, fv.Lifting(), rng=np.random.default_rng(0)), tmp_path / "private.veil")
    return tmp_path / "private.veil"


@pytest.mark.parametrize("report", [True, False])
def test_attack(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], report: bool) -> None:
    done: list[tuple[int, int]] = []
    request = AttackRequest((release,), ("nearest",), tmp_path / "raw.veil", tmp_path / "out")
    assert not keeps(request)
    known = AdversaryFiles(lifting_database=Path("none"))
    more = (lambda *so_far: done.append(so_far),) if report else ()
    result = attack(request, known, *more)
    assert keeps(request) and [record.attack for record in result.records] == ["nearest", "chance"]
    assert result.sources["lifting_database"] == "none" and (tmp_path / "out" / "table.md").is_file()
    assert json.loads(json.dumps(result.facts()))["failed"] == 0
    assert done == ([(0, 2), (1, 2), (2, 2)] if report else []) and capsys.readouterr() == ("", "")


def test_invert(release: Path) -> None:
    result = invert(InvertRequest(release, attack="nearest", original=views()[0]))
    assert result.picture.shape == (*result.size[::-1], 3) and result.attack == "nearest" and result.answered == 1
    assert result.score is not None and result.blank is not None and result.out is None
    with pytest.raises(fv.InputError, match="nothing would come of it"):
        invert(InvertRequest(release))


def test_pools_and_databases(tmp_path: Path) -> None:
    first = create_pool(PoolRequest(tmp_path / "device.pool", (views()[0],), max_features=30))
    second = add_to_pool(PoolAddition(tmp_path / "device.pool", (views()[1],), max_features=30))
    assert (first.photographs, second.photographs) == (1, 2) and second.free > first.free
    stages: set[str] = set()
    request = DatabaseRequest((views()[0].parent,), tmp_path / "own.safetensors", clusters=16, parts=2)
    built = build_database(request, lambda stage, done, total: stages.add(stage))
    assert load_database(request.out).digest == built.digest and stages and not request.work.exists()


def test_patches(tmp_path: Path) -> None:
    request = PatchesRequest((views()[0],), tmp_path / "set", views=1, max_features=40, longest_side=400)
    built = build_patches(request)
    assert built.images == 1 and built.matching == built.other > 0 and (tmp_path / "set" / "pairs.png").is_file()


def test_subset() -> None:
    planned = plan_subset(SubsetPlanRequest(4.0, codebook_size="2^1024", subset_sizes=(4, 1)))
    assert [row.subset_size for row in planned.rows] == [1, 4] and planned.codebook_size == 2**1024
    audited = audit_sampler(SubsetAuditRequest(1000.0, trials=100))
    assert audited.result.holds and audited.facts()["claimed_per_image"] == 1000 * audited.features


def test_faces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, people in (("others", population(60, 1, 16, seed=1)), ("staff", population(3, 2, 16, seed=2))):
        save_faces(people, tmp_path / f"{name}.npz")
    store = tmp_path / "people.sqlite"
    settings, weaknesses = create_store(StoreRequest(store, tmp_path / "others.npz", dimension=4))
    assert settings.dimension == 4 and (weaknesses in caplog.messages or not weaknesses)
    everyone = EnrollRequest(store, everyone=tmp_path / "staff.npz")
    assert (enroll(everyone).enrolled, enroll(everyone).already) == (3, 3)
    name = population(3, 2, 16, seed=2).names[0]
    nearest = identify_face(IdentifyRequest(store, tmp_path / "staff.npz"), FaceChoice(name=name)).nearest
    assert len(nearest) == 3 and nearest[0].accepted is None


def test_verbs_wait_with_heavy_imports() -> None:
    heavy = ["numba", "cv2", "faiss", "scipy", "h5py", "matplotlib", "torch", "onnxruntime", "featveil.attacks"]
    modules = ", ".join(f"featveil.pipelines.{name}" for name in (*LIGHT, *TRAINING))
    code = f"import sys, {modules}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
