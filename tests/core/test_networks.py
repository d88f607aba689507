"""The concealing network as a value: what it computes, what it is called, and what it refuses."""

from typing import Any

import numpy as np
import pytest

from featveil.core import ConcealingNetwork, Features, InputError, Keypoints, Points, base_kind, is_concealed
from featveil.databases import builtin
from networks import identity_network, random_network


def small(**changes: Any) -> ConcealingNetwork:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {"hidden_weight": rng.normal(size=(5, 3)), "hidden_bias": rng.normal(size=5)}
    parts |= {"output_weight": rng.normal(size=(3, 5)), "output_bias": rng.normal(size=3), "kind": "toy"}
    return ConcealingNetwork(**(parts | changes))


def slow(network: ConcealingNetwork, value: Any) -> list[float]:
    """One descriptor through the network, in plain loops."""
    norm = sum(float(part) ** 2 for part in value) ** 0.5
    hidden = []
    for weights, bias in zip(network.hidden_weight, network.hidden_bias, strict=True):
        total = sum(float(w) * float(part) / norm for w, part in zip(weights, value, strict=True)) + float(bias)
        hidden.append(max(total, 0.0))
    result = []
    for weights, bias in zip(network.output_weight, network.output_bias, strict=True):
        result.append(sum(float(w) * part for w, part in zip(weights, hidden, strict=True)) + float(bias))
    length = sum(part**2 for part in result) ** 0.5
    return [part / length for part in result]


def test_it_computes_what_the_formula_says() -> None:
    network, values = small(), np.random.default_rng(1).random((20, 3)).astype(np.float32) * 7
    np.testing.assert_allclose(network.apply(values), [slow(network, value) for value in values], atol=1e-6)


def test_tables_know_it_by_lambda_and_digest() -> None:
    assert small(lambda_=2.5).name == f"concealer-2.5-{small().digest[:8]}"


def test_many_rows_give_what_few_give_and_none_gives_none() -> None:
    values = np.random.default_rng(1).random((9000, 3)).astype(np.float32)
    np.testing.assert_allclose(small().apply(values)[8190:8200], small().apply(values[8190:8200]), atol=1e-6)
    assert small().apply(values[:0]).shape == (0, 3)


def test_the_norm_of_a_descriptor_does_not_matter() -> None:
    values = builtin().points()[:50]
    np.testing.assert_allclose(random_network().apply(512 * values), random_network().apply(values), atol=1e-5)


def test_the_digest_is_that_of_what_decides_the_outcome() -> None:
    assert small().digest == small(lambda_=2, card={"data": "other"}).digest
    assert len({small().digest, small(kind="other").digest, small(hidden_bias=np.zeros(5)).digest}) == 3
    half = small().hidden_weight.astype(np.float16)
    assert small(hidden_weight=half).digest == small(hidden_weight=half.astype(np.float32)).digest


def test_the_kind_of_what_it_gives_tells_networks_apart() -> None:
    kinds = {network.concealed_kind for network in (random_network(), random_network(seed=1), identity_network())}
    assert len(kinds) == 3
    assert all(is_concealed(kind) and base_kind(kind) == "sift" for kind in kinds)
    assert base_kind("sift") == "sift" and not is_concealed("sift")


def test_concealed_features_keep_all_but_descriptors_and_kind() -> None:
    xy = np.arange(20, dtype=np.float32).reshape(10, 2)
    raw = Features(Points(builtin().points()[:10]), "sift", Keypoints(xy), (9, 30), np.arange(10))
    concealed = random_network().conceal(raw)
    assert concealed.kind == random_network().concealed_kind
    assert (concealed.keypoints, concealed.image_size) == (raw.keypoints, raw.image_size)
    assert (concealed.labels == raw.labels).all()  # type: ignore[union-attr]
    assert np.allclose(np.linalg.norm(concealed.descriptors.values, axis=1), 1, atol=1e-5)
    with pytest.raises(InputError, match=r"conceals sift descriptors, the features are sift[+]concealed"):
        random_network().conceal(concealed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_weight": np.ones((5, 3, 1))}, "shape"),
        ({"hidden_weight": np.ones((0, 3))}, "hidden weights"),
        ({"hidden_weight": np.ones((4, 3))}, "hidden bias"),
        ({"output_weight": np.ones((5, 3))}, "output weight"),
        ({"output_weight": np.ones((4, 5))}, "output weight"),
        ({"output_bias": np.ones(5)}, "output bias"),
        ({"hidden_bias": np.full(5, np.nan)}, "NaN"),
        ({"hidden_bias": np.full(5, 1e5)}, "within"),
        ({"hidden_weight": np.full((5, 3), "x")}, "real numbers"),
        ({"kind": "SIFT!"}, "kind"),
        ({"kind": "a" * 60}, "kind"),
        ({"lambda_": -1}, "lambda"),
        ({"lambda_": float("inf")}, "lambda"),
        ({"lambda_": "1"}, "lambda"),
    ],
)
def test_what_is_no_network_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_what_cannot_be_concealed_is_refused() -> None:
    with pytest.raises(InputError, match="size 3, got shape"):
        small().apply(np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="zero norm"):
        small().apply(np.zeros((2, 3), np.float32))
    nothing = small(output_weight=np.zeros((3, 5)), output_bias=np.zeros(3))
    with pytest.raises(InputError, match="leaves nothing"):
        nothing.apply(np.ones((2, 3), np.float32))


def test_weights_do_not_end_up_in_a_log() -> None:
    assert repr(small()) == "ConcealingNetwork(kind='toy', lambda_=0.0)"
