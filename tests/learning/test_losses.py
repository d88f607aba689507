"""Losses: SSIM by the formula, pixel by pixel; gradients flow; names and weights that do not belong are refused."""

import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from torch import Tensor  # noqa: E402

from featveil.core import InputError  # noqa: E402
from featveil.learning.losses import gradient_error, luma, make_loss, ssim, structure_loss  # noqa: E402
from featveil.metrics.reconstruction import structural_similarity  # noqa: E402
from reconstructions import slow_ssim  # noqa: E402

torch.set_num_threads(1)


def pictures(count: int = 1, height: int = 24, width: int = 32, seed: int = 0) -> Tensor:
    values: Tensor = torch.rand(
        count, 3, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return values


@pytest.mark.parametrize("noise", [0.0, 0.05, 1.0])
def test_ssim_is_the_formula_and_that_of_the_metrics(noise: float) -> None:
    truth = luma(pictures(height=14, width=17))
    guess = (1 - noise) * truth + noise * luma(pictures(height=14, width=17, seed=1))
    similarity = float(ssim(guess, truth))
    first, second = guess[0, 0].numpy(), truth[0, 0].numpy()
    assert similarity == pytest.approx(slow_ssim(first, second), abs=1e-9)
    assert similarity == pytest.approx(structural_similarity(first, second), abs=1e-9)
    assert (similarity > 0.999) == (noise == 0)


def test_ssim_of_a_batch_is_the_mean_of_its_pictures() -> None:
    truth, guess = luma(pictures(3)), luma(pictures(3, seed=1))
    singles = [float(ssim(guess[place : place + 1], truth[place : place + 1])) for place in range(3)]
    assert float(ssim(guess, truth)) == pytest.approx(np.mean(singles), abs=1e-12)


def test_luma_is_a_weighted_sum_of_colours() -> None:
    coloured = pictures()
    red, green, blue = coloured[0].numpy()
    assert np.allclose(luma(coloured)[0, 0].numpy(), 0.299 * red + 0.587 * green + 0.114 * blue)


def test_gradient_error_by_hand() -> None:
    first, second = luma(pictures(height=8, width=8)), luma(pictures(height=8, width=8, seed=1))
    total, difference = 0.0, (first - second)[0, 0].numpy()
    for _ in range(3):
        side = len(difference)
        total += np.mean([abs(difference[i, j + 1] - difference[i, j]) for i in range(side) for j in range(side - 1)])
        total += np.mean([abs(difference[i + 1, j] - difference[i, j]) for i in range(side - 1) for j in range(side)])
        difference = difference.reshape(side // 2, 2, side // 2, 2).mean(axis=(1, 3))
    assert float(gradient_error(first, second)) == pytest.approx(total, abs=1e-12)


def test_the_structure_loss_is_its_three_parts_and_zero_for_the_truth() -> None:
    truth, guess = pictures(2, 32, 32), pictures(2, 32, 32, seed=1)
    parts = (guess - truth).abs().mean() + (1 - ssim(luma(guess), luma(truth))) / 2
    expected = float(parts + gradient_error(luma(guess), luma(truth)))
    assert float(structure_loss(guess, truth)) == pytest.approx(expected, abs=1e-12)
    assert float(structure_loss(truth, truth)) == pytest.approx(0, abs=1e-12)


def test_gradients_flow_to_every_pixel_and_lead_to_the_truth() -> None:
    truth = pictures(1, 32, 32)
    guess = torch.full_like(truth, 0.5).requires_grad_()
    losses = []
    optimiser = torch.optim.Adam([guess], 0.05)
    for _ in range(60):
        loss = make_loss("structure")(guess, truth)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        assert guess.grad is not None and (guess.grad != 0).float().mean() > 0.99
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0] and math.isfinite(losses[-1])


def test_other_names_and_misplaced_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be structure or perceptual, got 'lpips'"):
        make_loss("lpips")
    with pytest.raises(InputError, match="needs --loss-weights"):
        make_loss("perceptual")
    with pytest.raises(InputError, match="takes no weights"):
        make_loss("structure", tmp_path / "vgg.pth")
    with pytest.raises(InputError, match="there is no weights file"):
        make_loss("perceptual", tmp_path / "vgg.pth")
