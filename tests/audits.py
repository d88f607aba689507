"""Made-up records of an audit, as a task writes them, with figures like real ones."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from featveil.audit.rows import UTILITY
from featveil.core.arrays import Float64
from featveil.core.records import Parameter, Record
from featveil.databases import builtin
from featveil.metrics.leakage import METRIC, UNIT

VERSIONS = {"featveil": "0.1.0", "numpy": "2.1.0"}
# Attack: adversary, on what, and the share near at dimension 4 or the like.
TRIALS: dict[str, tuple[str, str, float]] = {
    "chance": ("none", "all", 0.004),
    "read": ("release", "points", 1.0),
    "mean": ("release", "subspaces", 0.2),
    "nearest": ("release", "subspaces", 0.35),
    "database + lifting_database": ("release", "subspaces", 0.93),
    "clustering": ("release", "subspaces", 0.6),
    "lattice": ("release", "subspaces", 0.99),
    "vertex": ("release", "subspaces", 0.97),
    "overlap": ("release", "subspaces", 0.75),
    "overlap + geometry": ("release", "subspaces", 0.9),
    "discriminator": ("release", "subspaces", 0.985),
    "posterior": ("release", "words", 0.3),
    "posterior-overlap": ("release", "words", 0.33),
    "relift": ("twice", "subspaces", 1.0),
    "posterior + repeats": ("twice", "words", 0.5),
    "inlier": ("place", "all", 0.45),
}


def utility_record(
    scheme: str,
    sides: str,
    counts: Sequence[int],
    parameters: dict[str, Parameter],
    dataset: str = "town",
    seed: int = 0,
) -> Record:
    """Matches of one image pair: all, right, verified, right verified."""
    given = {**parameters, "sides": sides}
    value = tuple(map(float, counts))
    return Record(
        "audit", dataset, scheme, UTILITY, value, "count, count, count, count", counts[0], seed, VERSIONS, None, given
    )


def leakage_record(
    scheme: str,
    attack: str,
    near: float,
    parameters: dict[str, Parameter],
    dataset: str = "town",
    seed: int = 0,
    count: int = 100,
) -> Record:
    """One attack on one photograph, which comes near a share of the features."""
    given = {"adversary": TRIALS[attack][0], **parameters}
    value = (1.1 - near, 1.2 - near, near * 0.8, near, near * 0.3, 3.0, 1.0)
    return Record("audit", dataset, scheme, METRIC, value, UNIT, count, seed, VERSIONS, attack, given)


def skipped_record(
    scheme: str, attack: str, reason: str, parameters: dict[str, Parameter], dataset: str = "town", seed: int = 0
) -> Record:
    """An attack that does not apply."""
    given = {**parameters, "reason": reason}
    return Record("audit", dataset, scheme, "skipped", 0.0, "", 0, seed, VERSIONS, attack, given)


def spec(defense: str, victim: str = "a.png", features: int = 400, **more: Parameter) -> dict[str, Parameter]:
    """The parameters of a record."""
    given: dict[str, Parameter] = {"victim": victim, "defense": defense, "keypoints": "all", "geometry": False}
    given |= {"features": features, "raw_features": 400, "kind": "sift", "max_features": 500, "sample": 100}
    return given | {"own_database": "0123456789abcdef"} | more


def schemes() -> dict[str, tuple[dict[str, Parameter], float, float, float]]:
    """Parameters of 20 schemes, the share of raw matches each keeps on one side and on both, and how it leaks."""
    found = {"identity": (spec("identity"), 1.0, 1.0, 1.0)}
    apart = spec("identity", features=80, keypoints="apart")
    found["identity-apart"] = (apart, 0.3, 0.27, 1.0)
    for strategy, (place, m) in product(("random", "sub-adversarial", "sub-hybrid"), enumerate((2, 4, 8))):
        kept = 0.96 - 0.05 * place - (0.08 if strategy == "sub-adversarial" else 0)
        found[f"{strategy}-{m}"] = (
            spec("lifting", strategy=strategy, dimension=m),
            kept,
            kept - 0.25,
            1.0 - 0.03 * place,
        )
    for k, m in ((2, 8), (4, 8), (4, 16)):
        given = spec("hardened", confounders=k, dimension=m)
        found[f"hardened-{k}-{m}"] = (given, 0.9 - 0.02 * k, 0.6 - 0.02 * k, 0.9 - 0.02 * m)
    given = spec("hardened", features=80, confounders=4, dimension=16, keypoints="apart")
    found["hardened-4-16-apart"] = (given, 0.26, 0.2, 0.27)
    found["hardened-4-16-apart-geometry"] = (given | {"geometry": True}, 0.26, 0.2, 0.31)
    for epsilon, bound in ((6.0, 0.02), (8.0, 0.154), (10.0, 0.5)):
        given = spec("subset", epsilon=epsilon, subset_size=4, bound=bound, codebook="0123456789abcdef")
        found[f"subset-{epsilon:g}-4"] = (given, epsilon / 25, epsilon / 40, epsilon / 20)
    found["metric-49-1"] = (spec("metric", epsilon=49.0, subset_size=1, codebook="0123456789abcdef"), 0.35, 0.2, 0.6)
    return found


def audit(datasets: Sequence[str] = ("town", "woods"), seeds: Sequence[int] = (0, 1), victims: int = 4) -> list[Record]:
    """A whole audit; the first victim's records of the first seed show three features."""
    return [
        record
        for dataset, seed, number in product(datasets, seeds, range(victims))
        for record in _of_victim(dataset, seed, number, seeds[0])
    ]


def _of_victim(dataset: str, seed: int, number: int, first: int) -> Iterator[Record]:
    rng = np.random.default_rng([len(dataset), seed, number])
    truth = np.minimum(np.round(_unit(builtin("sift").values[:3]) * 512), 255).astype(int)
    for scheme, (given, one, both, leaks) in schemes().items():
        parameters = given | {"victim": f"{dataset}-{number}.png"}
        bound = {"bound": parameters.pop("bound")} if "bound" in given else {}  # stated where something was attacked
        for sides, share in (("one", one), ("both", both)):
            right = round(300 * share * rng.uniform(0.93, 1)) if scheme != "identity" else 300
            counts = (2 * right, round(1.2 * right), round(1.1 * right), right)
            yield utility_record(scheme, sides, counts, parameters, dataset, seed)
        for attack, (_, target, near) in TRIALS.items():
            of = {"identity": "points", "subset": "words", "metric": "words"}.get(str(given["defense"]), "subspaces")
            if target not in ("all", of):
                reason = f"attack {attack} is on {target}; these are {of}"
                yield skipped_record(scheme, attack, reason, parameters, dataset, seed)
                continue
            share = near * rng.uniform(0.95, 1) * (leaks if target != "all" else 1) if attack != "read" else 1.0
            shown: dict[str, Parameter] = {}
            if number == 0 and seed == first:
                noise = rng.normal(size=truth.shape) * 60 * (1 - share)
                shown = {"shown_truth": truth.ravel().tolist()}
                shown["shown_guess"] = np.clip(np.round(truth + noise), -255, 255).astype(int).ravel().tolist()
            yield leakage_record(scheme, attack, share, parameters | bound | shown, dataset, seed, 80 + 20 * number)


def _unit(values: NDArray[np.generic]) -> Float64:
    wide = values.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))
