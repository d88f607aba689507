"""Inversion networks: shapes, and that what is scattered is what a dense map of features would hold."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from torch import Tensor  # noqa: E402

from featveil.core import InputError  # noqa: E402
from featveil.learning.encodings import STRIDES  # noqa: E402
from featveil.learning.inverter_networks import WIDTHS, Inverter, make_inverter  # noqa: E402
from featveil.learning.training import Sample, collate  # noqa: E402
from small_inverters import ENCODING, TINY, some_sample, tiny_inverter  # noqa: E402

CPU = torch.device("cpu")
ARCHITECTURES = ["unet", "uresnet"]


def painted(network: Inverter, *samples: Sample) -> Tensor:
    rows, cells, frame, _ = collate(samples, CPU)
    with torch.no_grad():
        made: Tensor = network(rows, cells, frame)
    return made


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
        made: Tensor = torch.zeros(1, 3, height, width)
        for colour in range(3):
            for i in range(2):
                for j in range(2):
                    made[:, colour, i::2, j::2] = colours[:, 4 * colour + 2 * i + j]
        return made + 0.5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("width", "height"), [(32, 32), (96, 32), (64, 160)])
def test_scattering_is_the_dense_map(architecture: str, width: int, height: int) -> None:
    network, sample = tiny_inverter(architecture=architecture), some_sample(1, width, height)
    made = painted(network, sample)
    assert made.shape == (1, 3, height, width)
    assert torch.allclose(made, slow(network, sample), atol=1e-5)
    moved = Sample(sample.rows, np.roll(sample.cells, 1, axis=0), sample.image)
    assert not torch.allclose(made, painted(network, moved), atol=1e-3)


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
