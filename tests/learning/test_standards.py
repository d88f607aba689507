"""Rows at mean 0 and spread 1, and networks that read them as they are afterwards."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from featveil.inverters import load_inverter  # noqa: E402
from featveil.learning.exporting import export_inverter  # noqa: E402
from featveil.learning.standards import Standard  # noqa: E402
from small_inverters import ENCODING, some_sample, tiny_inverter  # noqa: E402


def alike(count: int = 300) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Rows that hardly differ; the last column not at all."""
    rng = np.random.default_rng(0)
    rows = (1 + 1e-3 * rng.normal(size=(count, ENCODING.columns))).astype(np.float32)
    rows[:, -1] = 0.25
    return rows


def test_rows_get_mean_0_and_spread_1_and_constant_columns_stay() -> None:
    made = Standard.of(alike()).apply(alike())
    assert np.abs(made[:, :-1].mean(axis=0)).max() < 1e-3 and np.abs(made[:, :-1].std(axis=0) - 1).max() < 1e-3
    assert (made[:, -1] == 0.25).all()


def test_a_folded_network_makes_the_same_of_rows_as_they_are() -> None:
    standard, network = Standard.of(alike()), tiny_inverter()
    first = network.reader[0]
    wanted = first(torch.from_numpy(standard.apply(alike()))).detach().numpy()
    folded = standard.folded(network)
    assert folded is not network
    made = folded.reader[0](torch.from_numpy(alike())).detach().numpy()
    assert np.abs(made - wanted).max() < 0.02  # of values up to 3; rows alone lose that many digits
    standard.unfold(folded)
    assert torch.allclose(folded.reader[0].weight, first.weight, rtol=1e-4)
    assert torch.allclose(folded.reader[0].bias, first.bias, atol=1e-3)


def test_a_file_keeps_what_large_weights_tell(tmp_path: Path) -> None:
    """Weights of a thousand in half precision would drown differences of a thousandth."""
    standard, sample = Standard.of(alike()), some_sample()
    folded = standard.folded(tiny_inverter())
    export_inverter(tmp_path / "a.onnx", folded, ENCODING, {})
    rows = alike(len(sample.rows))
    feed = {"rows": rows, "cells": sample.cells, "frame": np.zeros((1, 1, 1), np.float32)}
    session = load_inverter(tmp_path / "a.onnx")._session
    height, width = (side // 32 for side in sample.image.shape[:2])
    feed["frame"] = np.zeros((1, height, width), np.float32)
    painted = session.run(["image"], feed)[0]
    with torch.inference_mode():
        wanted = folded(*(torch.from_numpy(feed[name]) for name in ("rows", "cells", "frame"))).numpy()
    assert np.abs(painted - wanted).max() < 0.02 * np.abs(wanted - 0.5).max()
