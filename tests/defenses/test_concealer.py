"""The concealer: what it sends and is called, and how other defenses follow it."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from featveil.core import Features, InputError, NotFittedError, Points, PrivateFeatures, Subspaces, WordSets
from featveil.databases import ConcealedDatabase, Database, builtin, conceal_database, nearest_words, save_database
from featveil.defenses import (
    Concealer,
    Hardened,
    Identity,
    Lifting,
    Metric,
    Naive,
    Subset,
    builtin_concealer,
    has_builtin_concealer,
    last_step,
    privatize,
)
from featveil.defenses.subset import subset_coin
from featveil.distances import matrix
from featveil.formats.veil import decode, encode
from featveil.matching import match
from networks import identity_network, random_network

AFTER: dict[str, Any] = {"lifting": Lifting(), "subset": Subset(10.0, 4), "metric": Metric(40.0)}


def features(n: int = 8, start: int = 100) -> Features:
    return Features(Points(builtin().points()[start : start + n]), "sift")


def sent(defense: Concealer, raw: Features | None = None) -> PrivateFeatures:
    return privatize(raw or features(), defense, rng=np.random.default_rng(0))


def test_it_sends_what_the_network_gives_and_nothing_is_drawn() -> None:
    private = sent(Concealer(random_network()))
    assert isinstance(private.descriptors, Points)
    assert (private.descriptors.values == random_network().apply(features().descriptors.values)).all()
    assert private.kind == random_network().concealed_kind
    assert private.defense == {"name": "concealer", "network": random_network().digest, "lambda": 1.0}
    assert (private.guarantee.kind, private.guarantee.epsilon) == ("empirical", None)


def test_a_file_keeps_it() -> None:
    for then in (None, *AFTER.values()):
        private = sent(Concealer(random_network(), then))
        again = decode(encode(private))
        assert isinstance(again, PrivateFeatures)
        assert (again.kind, again.defense, again.guarantee) == (private.kind, private.defense, private.guarantee)


@pytest.mark.parametrize("name", AFTER)
def test_what_follows_sends_its_own_representation_and_keeps_its_guarantee(name: str) -> None:
    defense = Concealer(random_network(), AFTER[name])
    private, alone = sent(defense), privatize(features(), AFTER[name])
    assert type(private.descriptors) is type(alone.descriptors)
    assert private.guarantee == alone.guarantee == defense.guarantee()
    assert (private.defense["name"], private.defense["then"]) == ("concealer", name)
    own = {key: value for key, value in alone.defense.items() if key not in ("name", "database", "codebook")}
    assert own.items() <= private.defense.items()
    assert last_step(defense) is defense.then and last_step(Lifting()) == Lifting()


def test_subspaces_contain_the_concealed_descriptor_and_concealed_entries() -> None:
    private, network = sent(Concealer(random_network(), Lifting("sub-hybrid", 4))), random_network()
    assert isinstance(private.descriptors, Subspaces)
    concealed = network.conceal(features()).descriptors
    assert matrix(concealed, private.descriptors).diagonal().max() < 1e-3
    entries = conceal_database(builtin(), network)
    inside = matrix(private.descriptors, entries.as_points) < 1e-3
    assert (inside.sum(axis=1) >= 2).all()  # half of the directions lead to entries


def test_the_ratio_bound_of_subset_holds_for_raw_descriptors() -> None:
    """Exact, over all outputs of a small codebook: whatever the network does, it only chooses the word."""
    codebook = Database(builtin().values[:6], "sift", 1)
    defense = Concealer(random_network(), Subset(1.5, 2, codebook)).for_kind("sift")
    assert isinstance(defense.then, Subset)
    coin = subset_coin(1.5, 6, 2).probability
    words = nearest_words(Points(random_network().apply(features(20).descriptors.values)), defense.then.codebook)[0]  # type: ignore[arg-type]
    sets = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    with_word, without = coin / 5, (1 - coin) / 10
    chances = [[float(with_word if word in one else without) for one in sets] for word in words]
    assert all(math.isclose(sum(row), 1) for row in chances)
    most = max(a / b for first in chances for second in chances for a, b in zip(first, second, strict=True))
    assert most <= math.exp(1.5) * (1 + 1e-12)


def test_a_database_of_ones_own_is_concealed_and_named_by_what_it_is_made_of() -> None:
    own = Database(builtin().values[:2000], "sift", 4, card={"source": "mine"})
    fitted = Concealer(random_network(), Lifting(database=own)).for_kind("sift")
    assert isinstance(fitted.then, Lifting) and isinstance(fitted.then.database, ConcealedDatabase)
    made = fitted.then.database
    assert (made.kind, made.parts, made.source) == (random_network().concealed_kind, 4, own)
    assert made.card["source"] == "mine" and own.digest in made.card["derived"]
    assert fitted.spec()["database"] == made.digest != own.digest
    same = Database(own.values, "sift", 4)
    assert conceal_database(same, random_network()).digest == made.digest
    assert conceal_database(same, random_network(seed=1)).digest != made.digest
    assert fitted.for_kind("sift").then == fitted.then
    assert conceal_database(made, random_network()) is made


def test_a_concealed_database_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="made anew from its source"):
        save_database(conceal_database(builtin(), random_network()), tmp_path / "x")


def test_random_lifting_needs_no_database() -> None:
    private = sent(Concealer(random_network(), Lifting("random", 2)))
    assert private.defense["database"] is None


def test_raw_and_concealed_and_two_networks_do_not_mix() -> None:
    raw, other = features(), sent(Concealer(random_network(seed=1)))
    private = sent(Concealer(random_network()))
    with pytest.raises(InputError, match=r"conceal the raw side too, by naming the network \(--concealer FILE"):
        match(private, raw)
    with pytest.raises(InputError, match="concealed by different networks"):
        match(private, other)
    with pytest.raises(InputError, match="concealed by different networks"):
        match(other, random_network().conceal(raw))
    with pytest.raises(InputError, match="neither side was concealed by network"):
        match(raw, raw, network=random_network())
    with pytest.raises(InputError, match="same kind"):
        match(private, replace(raw, kind="rootsift"))


@pytest.mark.parametrize("then", [None, *AFTER.values()])
def test_a_raw_reference_is_concealed_when_the_network_is_at_hand(then: Any) -> None:
    then = Subset(60.0, 2) if isinstance(then, Subset) else then
    private, raw, network = sent(Concealer(random_network(), then)), features(), random_network()
    for pair in ((private, raw), (raw, private), (private, network.conceal(raw))):
        matches = match(*pair, network=network)
        if isinstance(private.descriptors, WordSets):
            assert len(matches) >= 1
            continue
        assert (matches.indices == np.arange(8)[:, None]).all()


def test_concealed_words_find_their_codebook() -> None:
    network, raw = random_network(), features()
    private = sent(Concealer(network, Subset(60.0, 2)))
    with pytest.raises(InputError, match="and the network that they were concealed by"):
        match(private, network.conceal(raw))
    found = match(private, raw, network=network)
    given = match(private, raw, network=network, codebook=builtin())
    made = match(private, network.conceal(raw), codebook=conceal_database(builtin(), network))
    assert (found.indices == given.indices).all() and (found.indices == made.indices).all()
    other = Database(builtin().values[:50], "sift", 1)
    with pytest.raises(InputError, match="use the same file"):
        match(private, raw, network=network, codebook=other)


def test_what_it_cannot_serve() -> None:
    with pytest.raises(InputError, match="conceals sift descriptors, the features are rootsift"):
        Concealer(random_network()).for_kind("rootsift")
    with pytest.raises(InputError, match="must be a ConcealingNetwork"):
        Concealer("file")  # type: ignore[arg-type]
    afterwards: tuple[Any, ...] = (Identity(), Naive(10.0), Hardened(), Concealer(), "lifting")
    for then in afterwards:
        with pytest.raises(InputError, match="after a concealer come lifting, subset or metric"):
            Concealer(random_network(), then)
    with pytest.raises(InputError, match="this network conceals sift descriptors, the database holds rootsift"):
        Concealer(random_network(), Lifting(database=builtin("rootsift"))).for_kind("sift")
    with pytest.raises(NotFittedError, match="no network"):
        Concealer().privatize(features().descriptors, np.random.default_rng(0))


def test_without_a_file_there_is_no_built_in_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("featveil.defenses.concealer.DATA", tmp_path)
    builtin_concealer.cache_clear()
    assert not has_builtin_concealer("sift")
    with pytest.raises(InputError, match=r"no built-in concealer for sift descriptors: give the file of one"):
        Concealer().for_kind("sift")


def test_the_network_that_comes_with_featveil() -> None:
    builtin_concealer.cache_clear()
    network = builtin_concealer("sift")
    assert (network.kind, network.size) == ("sift", 128) and network.lambda_ > 0
    assert "Apache-2.0" in network.card["licence"] and "photographs" in network.card["data"]
    rates = network.card["false_positive_rate_95"]
    assert rates["concealed"] <= 2 * rates["raw"]
    private = sent(Concealer())
    assert private.kind == network.concealed_kind and private.defense["network"] == network.digest
    assert not has_builtin_concealer("superpoint")


def test_it_runs_without_torch() -> None:
    code = "import sys, numpy, featveil as fv; fv.builtin_concealer('sift').apply(numpy.ones((3, 128)))"
    code += "; print(any(name.split('.')[0] in ('torch', 'onnxruntime') for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_built_in_network_is_used_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.defenses.concealer.builtin_concealer", lambda kind: identity_network(kind))
    private = sent(Concealer())
    assert isinstance(private.descriptors, Points)
    np.testing.assert_allclose(private.descriptors.values, features().descriptors.values, atol=1e-6)


def test_no_network_gives_a_release_of_nothing() -> None:
    assert Concealer().spec() == {"name": "concealer", "network": None, "lambda": None}
