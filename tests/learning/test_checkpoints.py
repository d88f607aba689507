"""The state of a training in a file: whole or not at all, read without running code, and never of another training."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from safetensors.torch import save_file  # noqa: E402

from featveil.core import FormatError, InputError  # noqa: E402
from featveil.learning.checkpoints import check_same, load_checkpoint, save_checkpoint  # noqa: E402


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"half": torch.arange(6.0).reshape(2, 3).T, "count": torch.tensor(3.0)}
    state = {"step": 4, "history": [[0.5, 2, 0.25]], "identity": {"encoding": {"kind": "sift"}}}
    for _ in range(2):  # replacing the first
        save_checkpoint(path, tensors, state)
    loaded, stored = load_checkpoint(path)
    assert stored == state
    assert loaded.keys() == tensors.keys() and all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, {"a": torch.zeros(3)}, {"step": 1})
    before = path.read_bytes()

    def full(tensors: Any, target: Path, metadata: Any) -> None:
        save_file(tensors, tmp_path / "missing" / "folder")

    monkeypatch.setattr("featveil.learning.checkpoints.save_file", full)
    with pytest.raises(InputError, match=f"cannot write {path}"):
        save_checkpoint(path, {"a": torch.ones(3)}, {"step": 2})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_missing_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(InputError, match="there is no checkpoint"):
        load_checkpoint(path)
    save_checkpoint(path, {"a": torch.zeros(300)}, {"step": 1})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"PK\x03\x04 another format", whole[:8] + b"?" + whole[9:]):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="no checkpoint of a training, or damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize("state", [None, "", "{", "[" * 100_000, json.dumps([1, 2]), json.dumps("text")])
def test_a_state_that_is_none_is_refused(tmp_path: Path, state: str | None) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors", None if state is None else {"state": state})
    with pytest.raises(FormatError, match="no checkpoint of a training"):
        load_checkpoint(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"size": "paper", "encoding": {"kind": "sift", "count": 1}}, "made with size paper, not small"),
        ({"size": "small", "encoding": {"kind": "sift", "count": 2}}, r"made with encoding\.count 2, not 1"),
        ({"size": "small", "encoding": {"kind": "sift"}}, r"made with encoding\.count None, not 1"),
        ({"size": "small", "encoding": {"kind": "sift", "count": 1, "more": 3}}, r"encoding\.more 3, not None"),
        ({"size": "small", "encoding": "x" * 200}, r"made with encoding x{80}\.\.\., not"),
        ({"encoding": {"kind": "sift", "count": 1}}, "made with size None, not small"),
        (None, "made with size None, not small"),
    ],
)
def test_the_setting_that_differs_is_named(stored: Any, message: str) -> None:
    now = {"size": "small", "encoding": {"kind": "sift", "count": 1}}
    with pytest.raises(InputError, match=message):
        check_same(Path("a"), stored, now)
    check_same(Path("a"), now, now)
    with pytest.raises(InputError, match="made with later_setting 5, not None"):
        check_same(Path("a"), {**now, "later_setting": 5}, now)
