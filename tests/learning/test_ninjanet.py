"""The concealing network as torch and as NumPy runs it, and its utility loss beside one in plain loops."""

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from featveil.core.arrays import Float32  # noqa: E402
from featveil.core.networks import ConcealingNetwork  # noqa: E402
from featveil.learning.adversarial import NinjaNet, utility_loss  # noqa: E402

MARGIN, NEIGHBOURS, TINY = 1.0, 8, 1e-8  # of SOSNet, and what keeps roots off zero


def unit_rows(n: int, d: int, seed: int = 0) -> Float32:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def noisy_pairs(n: int, d: int, noise: float, seed: int = 0) -> tuple[Float32, Float32]:
    first = unit_rows(n, d, seed)
    second = first + noise * np.random.default_rng(seed + 1).standard_normal((n, d))
    return first, np.asarray(second / np.linalg.norm(second, axis=1, keepdims=True), np.float32)


def slow_loss(anchors: Float32, positives: Float32) -> float:
    """Mean squared hinge to the hardest negative of the batch, and mean second-order distance, one pair at a time."""

    def distance(a: Any, b: Any) -> float:
        return math.sqrt(max(2 - 2 * float(a.astype(np.float64) @ b.astype(np.float64)), TINY))

    def nearest(rows: Float32, i: int) -> set[int]:
        others = sorted((j for j in range(n) if j != i), key=lambda j: distance(rows[i], rows[j]))
        return set(others[:NEIGHBOURS])

    n, total = len(anchors), 0.0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        hardest = min(min(distance(anchors[i], positives[j]), distance(anchors[j], positives[i])) for j in others)
        total += max(0.0, MARGIN + distance(anchors[i], positives[i]) - hardest) ** 2 / n
        squares = TINY
        for j in nearest(anchors, i) | nearest(positives, i):
            squares += (distance(anchors[i], anchors[j]) - distance(positives[i], positives[j])) ** 2
        total += math.sqrt(squares) / n
    return total


@pytest.mark.parametrize("size", [1, 8, 128])
def test_it_gives_descriptors_of_the_same_size_and_norm_one(size: int) -> None:
    torch.manual_seed(0)
    concealed = NinjaNet(size)(torch.from_numpy(unit_rows(20, size)))
    assert concealed.shape == (20, size)
    assert torch.allclose(concealed.norm(dim=1), torch.ones(20), atol=1e-5)


def test_dropout_is_of_training_only() -> None:
    torch.manual_seed(0)
    network, values = NinjaNet(16), torch.from_numpy(unit_rows(50, 16))
    assert not torch.equal(network(values), network(values))
    network.eval()
    assert torch.equal(network(values), network(values))
    hidden = network.dropout(torch.ones(1, 1000))
    assert torch.equal(hidden, torch.ones(1, 1000))
    network.train()
    assert 0.05 < float((network.dropout(torch.ones(1, 10_000)) == 0).float().mean()) < 0.15


def test_the_weights_are_those_of_the_network_that_a_device_runs() -> None:
    torch.manual_seed(0)
    network, values = NinjaNet(32).eval(), unit_rows(300, 32)
    with torch.inference_mode():
        expected = network(torch.from_numpy(values)).numpy()
    weights = network.weights()
    assert [array.shape for array in weights] == [(256, 32), (256,), (32, 256), (32,)]
    assert all(array.dtype == np.float32 for array in weights)
    concealed = ConcealingNetwork(*weights, "sift", 1.0).apply(values)
    assert np.abs(concealed - expected).max() < 1e-5
    # A device normalises what it is given; in training it is of norm 1 already.
    assert np.abs(ConcealingNetwork(*weights, "sift", 1.0).apply(7 * values) - expected).max() < 1e-5


def test_weights_do_not_change_when_training_goes_on() -> None:
    network = NinjaNet(4)
    kept = network.weights()
    with torch.no_grad():
        network.hidden.weight.add_(1)
    assert np.abs(network.weights()[0] - kept[0]).min() > 0.5


@pytest.mark.parametrize(("n", "noise"), [(2, 0.1), (5, 0.3), (9, 0.0), (30, 0.2), (40, 1.0)])
def test_the_loss_is_that_of_plain_loops(n: int, noise: float) -> None:
    anchors, positives = noisy_pairs(n, 6, noise, seed=n)
    loss = float(utility_loss(torch.from_numpy(anchors), torch.from_numpy(positives)))
    assert loss == pytest.approx(slow_loss(anchors, positives), rel=2e-3, abs=2e-3)


def test_the_loss_falls_as_pairs_match_and_others_do_not() -> None:
    losses = [
        float(utility_loss(*map(torch.from_numpy, noisy_pairs(64, 64, noise)))) for noise in (0.0, 0.05, 0.2, 1.0)
    ]
    assert losses == sorted(losses) and losses[0] < 0.3 < 1 < losses[-1]
    anchors, positives = map(torch.from_numpy, noisy_pairs(64, 64, 0.1))
    assert float(utility_loss(anchors, positives)) < float(utility_loss(anchors, positives.roll(1, 0))) - 1
    assert float(utility_loss(anchors, positives)) == pytest.approx(float(utility_loss(positives, anchors)), rel=1e-5)


@pytest.mark.parametrize("case", ["same everywhere", "equal pairs", "equal negatives", "opposite", "one pair"])
def test_gradients_are_finite_where_descriptors_are_identical(case: str) -> None:
    anchors, positives = (values.copy() for values in noisy_pairs(12, 8, 0.1))
    match case:
        case "same everywhere":
            anchors[:], positives[:] = anchors[0], anchors[0]
        case "equal pairs":
            positives[:] = anchors
        case "equal negatives":
            positives[1], anchors[3] = anchors[2], anchors[2]
        case "opposite":
            positives[:] = -anchors
        case "one pair":
            anchors, positives = anchors[:1], positives[:1]
    first, second = (torch.from_numpy(values).requires_grad_() for values in (anchors, positives))
    loss: Any = utility_loss(first, second)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert first.grad.isfinite().all() and second.grad.isfinite().all()


def test_second_order_similarity_can_be_left_out() -> None:
    anchors, positives = map(torch.from_numpy, noisy_pairs(64, 16, 0.3))
    none, half, whole = (float(utility_loss(anchors, positives, weight)) for weight in (0.0, 0.5, 1.0))
    across = (2 - 2 * anchors @ positives.T).clamp_min(0).sqrt().numpy()
    own, others = across.diagonal(), across + 10 * np.eye(64)
    hardest = np.minimum(others.min(axis=0), others.min(axis=1))
    assert none == pytest.approx(float(np.square(np.maximum(1 + own - hardest, 0)).mean()), rel=1e-3)
    assert half == pytest.approx((none + whole) / 2, rel=1e-4) and whole > none
    alike = torch.full((64, 16), 0.25)
    assert float(utility_loss(alike, alike)) == pytest.approx(1, abs=0.01)  # below that nothing collapses
