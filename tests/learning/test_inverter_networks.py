"""Inversion networks: shapes, and that what is scattered is what a dense map of features would hold.

And rows at mean 0 and spread 1, and networks that read them as they are afterwards.
"""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from torch import Tensor  # noqa: E402

from featveil.core import InputError  # noqa: E402
from featveil.inverters import load_inverter  # noqa: E402
from featveil.learning.encodings import STRIDES  # noqa: E402
from featveil.learning.exporting import export_inverter  # noqa: E402
from featveil.learning.inverter_networks import WIDTHS, Inverter, Standard, make_inverter  # noqa: E402
from featveil.learning.training import Sample, collate  # noqa: E402
from small_inverters import ENCODING, TINY, some_sample, tiny_inverter  # noqa: E402

CPU = torch.device("cpu")
ARCHITECTURES = ["unet", "uresnet"]


def painted(network: Inverter, *samples: Sample) -> Tensor:
    rows, cells, frame, _ = collate(samples, CPU)
    with torch.no_grad():
        pictures: Tensor = network(rows, cells, frame)
    return pictures


def slow(network: Inverter, sample: Sample) -> Tensor:
    """The picture of one sample, from dense maps that are filled one feature at a time."""
    height, width = sample.image.shape[:2]
    with torch.no_grad():
        read = network.reader(torch.from_numpy(sample.rows))
        maps = []
        for level, stride in enumerate(STRIDES):
            across, down = width // stride, height // stride
            scattered = network.scatters[level](read)
            dense = torch.zeros(1, scattered.shape[1], down, across)
            for feature, cell in enumerate(sample.cells[:, level].tolist()):
                if cell < across * down:
                    dense[0, :, cell // across, cell % across] += scattered[feature]
            maps.append(dense)
        levels = [network.encoders[0](maps[0])]
        for level in range(1, len(STRIDES)):
            levels.append(network.encoders[level](maps[level] + network.downs[level - 1](levels[-1])))
        picture = levels[-1]
        for level in reversed(range(len(STRIDES) - 1)):
            wide = network.ups[level](picture).repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
            picture = network.decoders[level](wide + levels[level])
        # Pixel-shuffle by hand: channel 4 c + 2 i + j is the colour c of pixel (i, j) of each cell.
        colours = network.painter(picture)
        canvas: Tensor = torch.zeros(1, 3, height, width)
        for colour in range(3):
            for i in range(2):
                for j in range(2):
                    canvas[:, colour, i::2, j::2] = colours[:, 4 * colour + 2 * i + j]
        return canvas + 0.5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("width", "height"), [(32, 32), (96, 32), (64, 160)])
def test_scattering_is_the_dense_map(architecture: str, width: int, height: int) -> None:
    network, sample = tiny_inverter(architecture=architecture), some_sample(1, width, height)
    picture = painted(network, sample)
    assert picture.shape == (1, 3, height, width)
    assert torch.allclose(picture, slow(network, sample), atol=1e-5)
    moved = Sample(sample.rows, np.roll(sample.cells, 1, axis=0), sample.image)
    assert not torch.allclose(picture, painted(network, moved), atol=1e-3)


def test_features_in_one_cell_add_up_and_their_order_does_not_matter() -> None:
    network, sample = tiny_inverter(), some_sample(2, n=6)
    together = Sample(sample.rows, np.repeat(sample.cells[:1], 6, axis=0), sample.image)
    assert torch.allclose(painted(network, together), slow(network, together), atol=1e-5)
    turned = Sample(sample.rows[::-1].copy(), sample.cells[::-1].copy(), sample.image)
    assert torch.allclose(painted(network, sample), painted(network, turned), atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_batch_is_its_pictures_one_by_one(architecture: str) -> None:
    network = tiny_inverter(architecture=architecture)
    samples = [some_sample(seed, 64, 32, n) for seed, n in enumerate((5, 40, 1))]
    together = painted(network, *samples)
    singles = torch.cat([painted(network, sample) for sample in samples])
    assert together.shape == (3, 3, 32, 64)
    assert torch.allclose(together, singles, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def test_every_weight_learns() -> None:
    for architecture in ARCHITECTURES:
        network = tiny_inverter(architecture=architecture)
        rows, cells, frame, images = collate([some_sample(n=300)], CPU)  # on every level
        (network(rows, cells, frame) - images).square().mean().backward()
        unmoved = [name for name, value in network.named_parameters() if value.grad is None or not value.grad.any()]
        assert unmoved == []


def test_the_architectures_differ_and_a_seed_decides_the_beginning() -> None:
    first, second = tiny_inverter(), tiny_inverter(architecture="uresnet")
    assert first.state_dict().keys() != second.state_dict().keys()
    again, other = tiny_inverter(), tiny_inverter(seed=1)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    assert not torch.equal(first.painter.weight, other.painter.weight)


def test_the_small_network_is_a_few_megabytes() -> None:
    weights = sum(value.numel() for value in make_inverter(135, "unet", "small", 0).parameters())
    assert 2e6 < weights < 3.5e6


def test_other_architectures_and_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="one of unet, uresnet, got 'vgg'"):
        make_inverter(ENCODING.columns, "vgg", TINY, 0)
    with pytest.raises(InputError, match=r"size must be one of small, paper.* got 'huge'"):
        make_inverter(ENCODING.columns, "unet", "huge", 0)
    assert WIDTHS["small"] == (24, 48, 96, 160, 224)  # of trainings that are stored


def alike(count: int = 300) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Rows that hardly differ; the last column not at all."""
    rng = np.random.default_rng(0)
    rows = (1 + 1e-3 * rng.normal(size=(count, ENCODING.columns))).astype(np.float32)
    rows[:, -1] = 0.25
    return rows


def test_rows_get_mean_0_and_spread_1_and_constant_columns_stay() -> None:
    rows = Standard.of(alike()).apply(alike())
    assert np.abs(rows[:, :-1].mean(axis=0)).max() < 1e-3 and np.abs(rows[:, :-1].std(axis=0) - 1).max() < 1e-3
    assert (rows[:, -1] == 0.25).all()


def test_a_folded_network_makes_the_same_of_rows_as_they_are() -> None:
    standard, network = Standard.of(alike()), tiny_inverter()
    first = network.reader[0]
    wanted = first(torch.from_numpy(standard.apply(alike()))).detach().numpy()
    folded = standard.folded(network)
    assert folded is not network
    read = folded.reader[0](torch.from_numpy(alike())).detach().numpy()
    assert np.abs(read - wanted).max() < 0.02  # of values up to 3; rows alone lose that many digits
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
