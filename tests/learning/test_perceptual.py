"""Networks of perceptual losses: the layers of the papers, weights from files that run nothing, others refused."""

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from safetensors.torch import save_file  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from featveil.core import FormatError, InputError  # noqa: E402
from featveil.learning.losses import make_loss, perceptual_error  # noqa: E402
from featveil.learning.perceptual import load_features, load_weights  # noqa: E402
from perceptual_weights import vgg16  # noqa: E402

torch.set_num_threads(1)

Weights = dict[str, Tensor]

# Expansion, kernel, stride, channels and repetitions of EfficientNet-lite0's stages (Tan and Le 2019, table 1).
LITE0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4))


def norm(name: str, width: int) -> Weights:
    return {
        f"{name}.weight": torch.rand(width) + 0.5,
        f"{name}.bias": torch.randn(width) / 10,
        f"{name}.running_mean": torch.randn(width) / 10,
        f"{name}.running_var": torch.rand(width) + 0.5,
        f"{name}.num_batches_tracked": torch.tensor(7),
    }


@cache
def lite0() -> Weights:
    """Random weights named as the published ones are."""
    torch.manual_seed(0)
    weights = {"_conv_stem.weight": torch.randn(32, 3, 3, 3) / 5, **norm("_bn0", 32)}
    before, place = 32, 0
    for expansion, kernel, _, width, count in LITE0:
        for _ in range(count):
            inner, name = before * expansion, f"_blocks.{place}"
            if expansion > 1:
                weights[f"{name}._expand_conv.weight"] = torch.randn(inner, before, 1, 1) / before**0.5
                weights |= norm(f"{name}._bn0", inner)
            weights[f"{name}._depthwise_conv.weight"] = torch.randn(inner, 1, kernel, kernel) / kernel
            weights[f"{name}._project_conv.weight"] = torch.randn(width, inner, 1, 1) / inner**0.5
            weights |= norm(f"{name}._bn1", inner) | norm(f"{name}._bn2", width)
            before, place = width, place + 1
    return weights


def pictures(seed: int = 0, side: int = 32) -> Tensor:
    values: Tensor = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(seed))
    return values


def written(weights: Weights, path: Path, wrapped: bool = False) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in weights.items()}, path)
    else:
        torch.save({"epoch": 3, "state_dict": weights} if wrapped else weights, path)
    return path


@pytest.mark.parametrize("name", ["net.safetensors", "net.pth", "net.pt"])
@pytest.mark.parametrize("make", [vgg16, lite0])
def test_weights_come_from_safetensors_and_from_torchs_own_files(
    tmp_path: Path, name: str, make: Callable[[], Weights]
) -> None:
    seen = load_features(written(make(), tmp_path / name))(pictures())
    again = load_features(written(make(), tmp_path / "wrapped.pth", wrapped=True))(pictures())
    assert all(torch.equal(one, other) for one, other in zip(seen, again, strict=True))


def test_vgg16_is_seen_after_its_first_fourth_and_seventh_convolution(tmp_path: Path) -> None:
    weights, given = vgg16(), pictures()
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    current = (given - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    expected = []
    for convolution, place in enumerate((0, 2, 5, 7, 10, 12, 14), 1):
        if place in (5, 10):
            current = functional.max_pool2d(current, 2)
        filters, bias = weights[f"features.{place}.weight"], weights[f"features.{place}.bias"]
        current = functional.conv2d(current, filters, bias, padding=1).relu()
        if convolution in (1, 4, 7):
            expected.append(current)
    seen = load_features(written(weights, tmp_path / "vgg.pth"))(given)
    assert [tuple(one.shape[1:]) for one in seen] == [(64, 32, 32), (128, 16, 16), (256, 8, 8)]
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(seen, expected, strict=True))


def same(grid: Tensor, filters: Tensor, stride: int, groups: int) -> Tensor:
    """A convolution padded as TensorFlow's "SAME": the odd pixel on the right and below."""
    size, kernel = grid.shape[-1], filters.shape[-1]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    padded = functional.pad(grid, (total // 2, total - total // 2) * 2)
    return functional.conv2d(padded, filters, stride=stride, groups=groups)


@pytest.mark.parametrize("side", [32, 50])
def test_lite0_is_the_published_network(tmp_path: Path, side: int) -> None:
    weights, given = lite0(), pictures(side=side)

    def normed(grid: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(grid, mean, variance, weight, bias, eps=1e-3)

    current = functional.relu6(normed(same((255 * given - 127) / 128, weights["_conv_stem.weight"], 2, 1), "_bn0"))
    expected, place = [], 0
    for expansion, _, first_stride, _, count in LITE0[:5]:
        for repetition in range(count):
            name, stride = f"_blocks.{place}", first_stride if repetition == 0 else 1
            inner = current
            if expansion > 1:
                inner = functional.conv2d(inner, weights[f"{name}._expand_conv.weight"])
                inner = functional.relu6(normed(inner, f"{name}._bn0"))
            inner = same(inner, weights[f"{name}._depthwise_conv.weight"], stride, inner.shape[1])
            inner = functional.relu6(normed(inner, f"{name}._bn1"))
            inner = normed(functional.conv2d(inner, weights[f"{name}._project_conv.weight"]), f"{name}._bn2")
            current = current + inner if repetition else inner
            if place in (0, 2, 4, 10):
                expected.append(current)
            place += 1
    seen = load_features(written(weights, tmp_path / "lite.pth"))(given)
    assert len(seen) == 4
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(seen, expected, strict=True))


def test_the_real_weights_were_trained_with_that_scaling(real_data: Path) -> None:
    """Means and variances of real photographs within the network are those that it remembers of its training."""
    from featveil.extractors import image_files, read_image
    from featveil.pipelines.train_parts.photo_samples import middle

    path = real_data / "weights" / "efficientnet_lite0" / "efficientnet-lite0_stem-to-block10.pth"
    if not path.is_file():
        pytest.skip("no weights of EfficientNet-lite0")
    files = image_files(real_data / "photos")
    network = load_features(path)
    given = np.stack([middle(read_image(file)) for file in files[:: len(files) // 12]])
    off = []

    def look(layer: Any, taken: tuple[Tensor, ...], _: Any) -> None:
        alive = layer.running_var > 1e-3
        away = taken[0].mean((0, 2, 3)) - layer.running_mean
        off.append(float((away / layer.running_var.sqrt())[alive].abs().mean()))

    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.register_forward_hook(look)
    with torch.no_grad():
        network(torch.from_numpy(given).permute(0, 3, 1, 2).float() / 255)
    assert np.mean(off) < 0.16


@pytest.mark.parametrize("make", [vgg16, lite0])
def test_the_loss_is_zero_for_the_truth_and_leads_to_it(tmp_path: Path, make: Callable[[], Weights]) -> None:
    loss, truth = make_loss("perceptual", written(make(), tmp_path / "net.pth")), pictures()
    assert float(loss(truth, truth)) == 0
    guess = pictures(1).requires_grad_()
    error = loss(guess, truth)
    error.backward()  # type: ignore[no-untyped-call]
    assert float(error.detach()) > float((guess - truth).detach().abs().mean()) > 0
    assert guess.grad is not None and guess.grad.isfinite().all() and guess.grad.abs().max() > 0


def test_the_error_is_the_sum_over_layers_of_mean_squares_and_the_network_stays(tmp_path: Path) -> None:
    features = load_features(written(vgg16(), tmp_path / "net.pth"))
    before = {name: value.clone() for name, value in features.state_dict().items()}
    guess, truth = pictures(1).requires_grad_(), pictures()
    error = perceptual_error(features, guess, truth)
    error.backward()  # type: ignore[no-untyped-call]
    pairs = zip(features(guess.detach()), features(truth), strict=True)
    assert float(error.detach()) == pytest.approx(
        sum(float((one - other).square().mean()) for one, other in pairs), rel=1e-5
    )
    assert all(not value.requires_grad for value in features.parameters())
    assert all(torch.equal(value, before[name]) for name, value in features.state_dict().items())


class Payload:
    """What a hostile pickle does when it is loaded: it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("as_torch", [True, False])
def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path: Path, as_torch: bool) -> None:
    mark, path = tmp_path / "ran", tmp_path / "weights.pth"
    hostile = {**vgg16(), "features.0.weight": Payload(mark)}
    if as_torch:
        torch.save(hostile, path)
    else:
        path.write_bytes(pickle.dumps(hostile))
    with pytest.raises(FormatError, match="no file of weights alone"):
        load_weights(path)
    assert not mark.exists()
    torch.load(path, weights_only=False) if as_torch else pickle.loads(path.read_bytes())  # noqa: S301
    assert mark.exists()  # the payload works: what is tested is that it was not run


def without(weights: Weights, name: str) -> Weights:
    return {known: value for known, value in weights.items() if known != name}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (without(vgg16(), "features.14.bias"), "another network"),
        (vgg16() | {"features.5.weight": torch.zeros(128, 64, 5, 5)}, "another network"),
        (without(lite0(), "_blocks.7._bn1.running_var"), "another network"),
        ({"weight": torch.zeros(3)}, "another network"),
        ({}, "another network"),
        (vgg16() | {"features.0.bias": torch.full((64,), torch.nan)}, "no numbers"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path: Path, weights: Weights, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_features(written(weights, tmp_path / "net.pth"))


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    for name in ("text.pth", "text.safetensors"):
        (tmp_path / name).write_text("no weights")
        with pytest.raises(FormatError, match="weights alone, or damaged"):
            load_features(tmp_path / name)
    torch.save([torch.zeros(3)], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "numbers.pth")
    for name in ("list.pth", "numbers.pth"):
        with pytest.raises(FormatError, match="something else than weights by name"):
            load_features(tmp_path / name)
    whole = written(vgg16(), tmp_path / "whole.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="damaged"):
        load_features(tmp_path / "cut.pth")
    with pytest.raises(InputError, match="there is no weights file"):
        load_features(tmp_path)
