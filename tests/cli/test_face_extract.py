"""featveil face extract, on photographs and on InsightFace's validation sets."""

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from face_sets import population
from featveil.datasets.face_sets import load_faces, save_faces
from featveil.pipelines.face_parts.face_templates import describe_bin
from interruptions import Watched
from template_stores import without_waiting_for_the_disk


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power that fails."""
    without_waiting_for_the_disk(monkeypatch)


def write_network(path: Path) -> Path:
    """A tiny network: the mean colour of a face times a matrix, of size 6."""
    onnx = pytest.importorskip("onnx", reason="making a network: pip install 'featveil[learning]'")
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["faces", "axes"], ["means"], keepdims=0),
            helper.make_node("MatMul", ["means", "weights"], ["templates"]),
        ],
        "faces",
        [helper.make_tensor_value_info("faces", TensorProto.FLOAT, ["n", 3, 112, 112])],
        [helper.make_tensor_value_info("templates", TensorProto.FLOAT, ["n", 6])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([2, 3]), "axes")],
    )
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


class TestBins:
    @pytest.fixture
    def network(self, tmp_path: Path) -> Path:
        return write_network(tmp_path / "net.onnx")

    @pytest.fixture
    def bin_file(self, tmp_path: Path) -> Path:
        """Twelve crops, six pairs."""
        crops = np.random.default_rng(1).integers(0, 256, (12, 112, 112, 3), np.uint8) // np.array([1, 2, 3], np.uint8)
        pictures = [cv2.imencode(".png", crop)[1].tobytes() for crop in crops]
        (tmp_path / "lfw.bin").write_bytes(pickle.dumps((pictures, 3 * [True, False])))
        return tmp_path / "lfw.bin"

    def test_a_store_for_a_network_that_its_faces_do_not_name(
        self, network: Path, tmp_path: Path, ran: Any, refused: Any
    ) -> None:
        from featveil.extractors.face_networks import OnnxNetwork

        known = OnnxNetwork(network)
        rng = np.random.default_rng(0)
        np.savez(
            tmp_path / "unnamed.npz", embedding=rng.standard_normal((30, known.size)), names=np.arange(30).astype(str)
        )
        options = ("--among", tmp_path / "unnamed.npz", "--model", network, "--dimension", 2)
        made = ran("face", "create", tmp_path / "a.sqlite", *options)
        assert (made["kind"], made["model"]) == (known.kind, known.digest)
        assert ran("face", "enroll", tmp_path / "a.sqlite", "--everyone", tmp_path / "unnamed.npz")["enrolled"] == 30
        save_faces(population(30, 1, 32), tmp_path / "other.npz")
        told = refused("face", "create", tmp_path / "b.sqlite", "--among", tmp_path / "other.npz", "--model", network)
        assert f"describes {known.kind} of size {known.size}" in told

    def test_descriptors_and_pairs(self, network: Path, bin_file: Path, tmp_path: Path, ran: Any, run: Any) -> None:
        from featveil.extractors.face_networks import OnnxNetwork

        extract = ("face", "extract", bin_file, "--out", tmp_path / "lfw.npz", "--model", network)
        made = ran(*extract)
        known = OnnxNetwork(network)
        assert made == {
            "out": str(tmp_path / "lfw.npz"), "faces": 12, "kind": known.kind, "model": known.digest, "left_out": 0
        }  # fmt: skip
        faces = load_faces(tmp_path / "lfw.npz")
        assert (len(faces), faces.size, faces.model) == (12, 6, known.digest)
        assert faces.pairs["same"].tolist() == [1, 0, 1, 0, 1, 0] and faces.pairs["first"].tolist() == [
            0,
            2,
            4,
            6,
            8,
            10,
        ]
        told = run(*extract, "--mean", 127.5, "--scale", 127.5).stdout
        assert "12 faces of kind face-" in told and "These are raw" in told
        assert load_faces(tmp_path / "lfw.npz").kind == OnnxNetwork(network, 127.5, 127.5).kind != known.kind

    def test_what_is_refused(self, network: Path, bin_file: Path, tmp_path: Path, image: Path, refused: Any) -> None:
        def extract(*sources: Path, out: str = "out.npz", model: Path = network, more: tuple[str, ...] = ()) -> str:
            return str(refused("face", "extract", *sources, "--out", tmp_path / out, "--model", model, *more))

        assert "a .bin file is described by itself" in extract(bin_file, image)
        assert "cannot read" in extract(tmp_path / "none.bin")
        assert "there is no image or folder" in extract(tmp_path / "none.png")
        assert "written to an .npz file, got" in extract(bin_file, out="out.npy")
        assert "exclude each other" in extract(bin_file, more=("--largest", "--all"))
        assert "there is no face network" in extract(bin_file, model=tmp_path / "none.onnx")
        assert "is no usable face network" in extract(bin_file, model=bin_file)
        assert "scale must be a number above 0" in extract(bin_file, more=("--scale", "0"))
        (tmp_path / "bad.bin").write_bytes(pickle.dumps((["text"], [True])))
        assert "is refused: " in extract(tmp_path / "bad.bin")
        (tmp_path / "evil.bin").write_bytes(b"cos\nsystem\n(S'touch evil'\ntR.")
        assert "a pickle of plain lists" in extract(tmp_path / "evil.bin")
        lone = ("face", "extract", bin_file, "--out", tmp_path / "out.npz", "--mean", 127.5)
        assert "--mean and --scale belong to --model" in refused(*lone)

    def test_a_folder_that_is_not_there_is_told_before_the_work(
        self, network: Path, bin_file: Path, tmp_path: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watched = Watched(monkeypatch, "featveil.pipelines.face_parts.face_templates.describe_bin", describe_bin)
        extract = ("face", "extract", bin_file, "--model", network, "--out")
        assert "does not exist: create it first" in refused(*extract, tmp_path / "nowhere" / "out.npz")
        assert watched.calls == 0


class TestPhotographs:
    """With dlib, on scikit-image's pictures of an astronaut and of a cup of coffee."""

    @pytest.fixture
    def photos(self, tmp_path: Path) -> Path:
        pytest.importorskip("dlib", reason="faces: pip install 'featveil[faces]'")
        data = pytest.importorskip("skimage.data", reason="the picture of a face: pip install scikit-image")
        (tmp_path / "photos" / "eileen").mkdir(parents=True)
        astronaut = np.asarray(data.astronaut())[:300, 80:400, ::-1]
        pictures = {
            "eileen/1.png": astronaut,
            "eileen/2.png": cv2.GaussianBlur(astronaut[:, ::-1], (0, 0), 1),
            "two.png": np.hstack([astronaut, astronaut]),
            "coffee.png": np.asarray(data.coffee())[::2, ::2, ::-1],
        }
        for name, picture in pictures.items():
            assert cv2.imwrite(str(tmp_path / "photos" / name), picture)
        (tmp_path / "photos" / "broken.jpg").write_bytes(b"no picture")
        return tmp_path / "photos"

    @pytest.fixture
    def people(self, photos: Path, tmp_path: Path, run: Any) -> Path:
        """A store for dlib's network that knows Eileen and has a threshold."""
        from featveil.extractors.face_networks import DlibNetwork

        digest, store = DlibNetwork().digest, tmp_path / "people.sqlite"
        save_faces(replace(population(60, 1, 128, seed=1), model=digest), tmp_path / "others.npz")
        strangers = population(12, 3, 128, seed=2, scatter=0.3, label=0.0)
        save_faces(replace(strangers, model=digest), tmp_path / "strangers.npz")
        for command in (
            ("create", store, "--among", tmp_path / "others.npz"),
            ("enroll", store, "Eileen", photos / "eileen" / "1.png"),
            ("calibrate", store, tmp_path / "strangers.npz", "--far", 0.01),
        ):
            done = run("face", *command)
            assert done.exit_code == 0, done.output
        return store

    def test_someone_is_known_again_by_another_photograph(
        self, people: Path, photos: Path, tmp_path: Path, run: Any
    ) -> None:
        for private in ([], ["--private"]):
            found = run("face", "verify", people, "Eileen", photos / "eileen" / "2.png", *private)
            assert found.exit_code == 0, found.output
        assert run("face", "identify", people, photos / "eileen" / "2.png").stdout.split()[2] == "Eileen"
        stranger = ("face", "verify", people, "Eileen", tmp_path / "stranger.npz")
        save_faces(load_faces(tmp_path / "strangers.npz").take(np.array([0])), tmp_path / "stranger.npz")
        assert run(*stranger).exit_code == 1

    def test_no_face_and_several(self, people: Path, photos: Path, tmp_path: Path, refused: Any, run: Any) -> None:
        for arguments in (("enroll", people, "bob"), ("verify", people, "Eileen"), ("identify", people)):
            assert "no face was found in the picture" in refused("face", *arguments, photos / "coffee.png")
            assert "2 faces were found" in refused("face", *arguments, photos / "two.png")
            assert "no image that can be read" in refused("face", *arguments, photos / "broken.jpg")
            assert "does not exist" in refused("face", *arguments, photos / "none.png")
            assert "is a folder" in refused("face", *arguments, photos)
            named = refused("face", *arguments, photos / "eileen" / "1.png", "--name", "x")
            assert "--name is for files of descriptors" in named
        assert run("face", "verify", people, "Eileen", photos / "two.png", "--largest").exit_code == 0
        assert run("face", "enroll", people, "twin", photos / "two.png", "--largest").exit_code == 0
        assert "no face was found" in refused("face", "verify", people, "Eileen", photos / "coffee.png", "--largest")

    def test_a_folder_without_what_shows_no_face(self, photos: Path, tmp_path: Path, run: Any) -> None:
        made = run("face", "extract", photos, "--out", tmp_path / "faces.npz", "--json")
        assert made.exit_code == 0
        warnings = made.stderr.splitlines()
        assert [line.split(":")[1].strip() for line in warnings] == [
            "left out broken.jpg", "left out coffee.png", "left out two.png"
        ]  # fmt: skip
        assert "no image that can be read" in warnings[0]
        assert "no face was found" in warnings[1] and "2 faces were found" in warnings[2]
        said = json.loads(made.stdout)
        assert (said["faces"], said["left_out"]) == (2, 3)
        faces = load_faces(tmp_path / "faces.npz")
        assert faces.names == ("eileen/1.png", "eileen/2.png") and set(faces.people) == {"eileen"}
        assert np.linalg.norm(faces.values[0] - faces.values[1]) < 0.4

    def test_all_faces_and_the_largest(self, photos: Path, tmp_path: Path, run: Any) -> None:
        extract = ("face", "extract", photos / "two.png", photos / "coffee.png", "--out", tmp_path / "faces.npz")
        every = run(*extract, "--all")
        assert every.exit_code == 0 and "2 faces of kind face-" in every.stdout and ", 1 left out" in every.stdout
        assert load_faces(tmp_path / "faces.npz").names == ("two.png#1", "two.png#2")
        assert run(*extract, "--largest").exit_code == 0
        assert load_faces(tmp_path / "faces.npz").names == ("two.png",)

    def test_pictures_that_show_no_face_at_all(self, photos: Path, tmp_path: Path, refused: Any) -> None:
        (tmp_path / "faces.npz").write_bytes(b"of before")
        for more in ([], ["--all"], ["--largest"]):
            told = refused("face", "extract", photos / "coffee.png", "--out", tmp_path / "faces.npz", *more)
            assert "no face was described; coffee.png: no face was found" in told

    def test_the_network_of_a_file(self, photos: Path, tmp_path: Path, people: Path, ran: Any, refused: Any) -> None:
        network = write_network(tmp_path / "net.onnx")
        made = ran("face", "extract", photos / "eileen" / "1.png", "--out", tmp_path / "one.npz", "--model", network)
        assert (made["faces"], load_faces(tmp_path / "one.npz").size) == (1, 6)
        other = ("face", "verify", people, "Eileen", photos / "eileen" / "1.png", "--model", network)
        assert f"this one is of {made['kind']} (size 6): describe it by the same network" in refused(*other)

    def test_without_the_extra(self, photos: Path, people: Path, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dlib", None)
        told = refused("face", "verify", people, "Eileen", photos / "eileen" / "1.png")
        assert "pip install 'featveil[faces]'" in told
