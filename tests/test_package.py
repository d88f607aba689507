"""The package as a whole: what importing it costs, and that every public name is there."""

import subprocess
import sys

import featveil


def test_importing_loads_nothing_heavy() -> None:
    heavy = "numba scipy cv2 faiss h5py safetensors typer rich matplotlib torch pycolmap"
    code = f"import sys, featveil; print(*[name for name in {heavy.split()!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


def test_every_public_name_resolves() -> None:
    for name in featveil.__all__:
        assert getattr(featveil, name) is not None
    assert dir(featveil) == sorted(featveil.__all__)


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(featveil, "privatise")
