"""Records of an audit -> one row for each dataset and scheme: what still matches, and what the best attacks get back.

Photographs are added up before anything is divided, so one with more features weighs more. Where there are several
seeds, every figure is a mean over them with its range. The order of the records does not matter.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from featveil.core import Guarantee, InputError
from featveil.core.guarantees import GuaranteeKind
from featveil.core.records import Parameter, Record
from featveil.metrics.leakage import MEASURED, METRIC

# What records are called: those who measure and those who report agree on it here.
TASK = "audit"
UTILITY = (
    "matches, right matches, verified, right verified"  # metric of a record of matches, in the order of its values
)
SKIPPED = "skipped"  # metric of a record of an attack that was not run
CONTENT = ("private", "mapped")  # what features show, where private content was pasted into the photograph
SIDES = ("one", "both")  # of a pair that are private: the query, or the map too
PICTURES_TASK = "audit pictures"  # its records are of pictures, and metrics/reconstruction.py says how near they are
UNSCORED = "picture"  # metric of a record of a picture that is compared with nothing
PHOTOGRAPH = "photograph"  # scheme of the record of the photograph itself

ADVERSARIES = ("release", "twice", "place", "none", "truth")
FAMILIES = ("identity", "gate", "lifting", "hardened", "concealer", "subset", "metric", "naive")
WORD_SETS = ("subset", "metric")

_NAMED = ("victim", "defense", "keypoints", "geometry", "features", "raw_features", "kind")
_COUNTS = ("features", "raw_features")
_SETTINGS = ("dimension", "confounders", "subset_size", "epsilon", "guarantee_epsilon", "bound")
_CONTENT_COUNTS = tuple(f"{side}_{what}" for side in CONTENT for what in ("raw", "sent", "scored", "near", "close"))
_LENGTHS = {UTILITY: len(UTILITY.split(", ")), METRIC: len(MEASURED)}
_MATCHES, _RIGHT, _, _RIGHT_VERIFIED = range(4)

_Pair = tuple[int, str]  # seed and victim
_Thing = tuple[str, str]  # ("utility", sides) or ("attack", name)
_Measured = dict[_Thing, dict[_Pair, Record]]  # all records of one scheme


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, with the least and the largest of them."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """That of `values`, one a seed; None when there is none."""
        return cls(fmean(values), min(values), max(values)) if values else None


@dataclass(frozen=True)
class Recovered:
    """What an attack gets back of all raw features of one side: those that are sent and guessed `near`, or `close`."""

    near: Spread
    close: Spread


@dataclass(frozen=True)
class TrialRow:
    """One attack on one scheme: `count` guesses on `victims` photographs, and how many came near.

    `adversary` says what the attacker has: "release", a second one ("twice"), another image of the "place", "none"
    (chance), or the "truth" (no adversary). `median` is a mean of the photographs' medians, in shares of the norm.
    `released_near` is the share of guesses near the concealed descriptor, before a concealer was undone. `private` and
    `mapped` are what it recovers of pasted content, and of what may be in a map; None where nothing was pasted.
    """

    attack: str
    adversary: str
    victims: int
    count: int
    below_near: Spread
    below_close: Spread
    exact: Spread
    median: Spread
    released_near: Spread | None = None
    private: Recovered | None = None
    mapped: Recovered | None = None


@dataclass(frozen=True)
class SkippedTrial:
    """An attack that was not run on some photographs, and why."""

    attack: str
    reason: str
    victims: int


@dataclass(frozen=True)
class AuditRow:
    """One scheme on one dataset; `then` is the defense after a concealer, if there is one.

    `utility_one` (private query, raw map) and `utility_both` are right verified matches as a share of those of raw
    features; `kept_one` and `kept_both` as a share of those of the same keypoints raw; `accuracy_*` is the share of
    right ones among all matches, `right_*` the right verified matches a photograph. `features` of `raw_features` were
    released a photograph. `image_epsilon` is epsilon times `features`. `best` is the attack with most guesses below
    NEAR of an adversary who has the release, `twice` and `place` those with more, `named` the attack that names most
    words right (word sets only). `private_best` recovers most of the private content that was pasted, of which
    `private_sent` is the share that is sent, as `mapped_sent` is of the rest; `private_raw` and `mapped_raw` are how
    many raw features there are of both. `missing` results of `expected` are not
    there: the audit was interrupted.
    """

    dataset: str
    scheme: str
    defense: str
    then: str | None
    strategy: str | None
    dimension: int | None
    confounders: int | None
    subset_size: int | None
    keypoints: str
    geometry: bool
    promise: str
    tau: float | None
    epsilon: float | None
    image_epsilon: float | None
    bound: float | None
    victims: int
    seeds: int
    features: float
    raw_features: float
    utility_one: Spread | None
    utility_both: Spread | None
    kept_one: Spread | None
    kept_both: Spread | None
    accuracy_one: Spread | None
    accuracy_both: Spread | None
    right_one: Spread | None
    right_both: Spread | None
    best: TrialRow | None
    twice: TrialRow | None
    place: TrialRow | None
    chance: TrialRow | None
    named: TrialRow | None
    private_best: TrialRow | None
    private_sent: Spread | None
    mapped_sent: Spread | None
    private_raw: int
    mapped_raw: int
    trials: tuple[TrialRow, ...]
    skipped: tuple[SkippedTrial, ...]
    missing: int
    expected: int


def summarize_audit(records: Sequence[Record]) -> list[AuditRow]:
    """One row per dataset and scheme, by dataset, family and name.

    A scheme with only a part of its records is summarized with what there is. Raises InputError when there is no
    record, one is of something else, two contradict each other, or a dataset lacks the scheme identity.
    """
    if not records:
        raise InputError("there is no record to report on: run the audit first")
    datasets: dict[str, dict[str, _Measured]] = {}
    for record in sorted(records, key=_place):
        _add(datasets.setdefault(record.dataset, {}).setdefault(record.scheme, {}), record)
    rows = []
    for dataset, schemes in datasets.items():
        if ("utility", "one") not in schemes.get("identity", {}):
            raise InputError(
                f"the records of {dataset} lack the matches of scheme identity, which everything is compared with:"
                " add it to the audit, or let the audit finish"
            )
        everything = _everything(schemes)
        rows += [_row(scheme, schemes, everything) for scheme in schemes]
    return rows


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts numbers within names as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def stated_guarantee(guarantee: Guarantee) -> dict[str, Parameter]:
    """The claim of a release as its records state it."""
    stated: dict[str, Parameter] = {
        "guarantee": guarantee.kind,
        "guarantee_epsilon": guarantee.epsilon,
        "guarantee_unit": guarantee.unit,
    }
    return stated if guarantee.tau is None else stated | {"guarantee_tau": guarantee.tau}


def _place(record: Record) -> tuple[object, ...]:
    _check(record)
    given = record.parameters
    family = str(given["defense"])
    order = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
    scheme = natural(record.dataset), order, natural(record.scheme)
    return *scheme, record.attack or "", record.seed, natural(str(given["victim"])), str(given.get("sides"))


def _check(record: Record) -> None:
    given = record.parameters
    if record.task != TASK or record.metric not in (UTILITY, METRIC, SKIPPED):
        raise InputError(f"a record of task {record.task} ({record.metric}) is not one of an audit: leave it out")
    lacking = [name for name in _NAMED if name not in given]
    if lacking:
        raise InputError(f"a record of scheme {record.scheme} lacks {', '.join(lacking)}: the file is damaged")
    length = _LENGTHS.get(record.metric)
    whole = length is None or (isinstance(record.value, tuple) and len(record.value) == length)
    if record.metric == UTILITY:
        whole = whole and given.get("sides") in SIDES
    elif record.metric == METRIC:
        whole = whole and record.attack is not None and given.get("adversary") in ADVERSARIES and record.count > 0
    else:
        whole = record.attack is not None and "reason" in given
    optional = (*_SETTINGS, "guarantee_tau", *_CONTENT_COUNTS)
    values = [given[name] for name in _COUNTS] + [given[name] for name in optional if given.get(name) is not None]
    numbers = all(isinstance(value, int | float) for value in values)
    if not whole or not numbers:
        raise InputError(f"a record of scheme {record.scheme} ({record.metric}) is not whole: the file is damaged")


def _add(measured: _Measured, record: Record) -> None:
    thing = ("utility", str(record.parameters["sides"])) if record.metric == UTILITY else ("attack", str(record.attack))
    pair = record.seed, str(record.parameters["victim"])
    before = measured.setdefault(thing, {}).setdefault(pair, record)
    if (before.metric, before.value, before.count) != (record.metric, record.value, record.count):
        raise InputError(
            f"two records of scheme {record.scheme} ({' '.join(thing)}, seed {record.seed}, {pair[1]}) differ: these"
            " are of two audits, report on each by itself"
        )


def _everything(schemes: dict[str, _Measured]) -> set[tuple[_Thing, _Pair]]:
    """What was measured, or skipped, for any scheme: what a whole audit has for every one."""
    return {(thing, pair) for measured in schemes.values() for thing, pairs in measured.items() for pair in pairs}


def _row(scheme: str, schemes: dict[str, _Measured], everything: set[tuple[_Thing, _Pair]]) -> AuditRow:
    measured = schemes[scheme]
    records = [record for pairs in measured.values() for record in pairs.values()]
    one = records[0]
    trials = tuple(_trials(measured))
    defense, features = str(one.parameters["defense"]), _mean_of_victims(records, "features")
    has = [(thing, pair) for thing, pairs in measured.items() for pair in pairs]
    then = None if one.parameters.get("then") is None else str(one.parameters["then"])
    guarantee = _guarantee(records)
    words = (then or defense) in WORD_SETS and defense != "gate"
    of_image = guarantee.unit == "image"
    if one.parameters.get("raw_map"):
        everything = {(thing, pair) for thing, pair in everything if thing != ("utility", "both")}
    epsilon = None if of_image else guarantee.epsilon
    return AuditRow(
        dataset=one.dataset,
        scheme=scheme,
        defense=defense,
        then=then,
        strategy=None if one.parameters.get("strategy") is None else str(one.parameters["strategy"]),
        dimension=_whole(one, "dimension"),
        confounders=_whole(one, "confounders"),
        subset_size=_whole(one, "subset_size"),
        keypoints=str(one.parameters["keypoints"]),
        geometry=bool(one.parameters["geometry"]),
        promise=guarantee.kind,
        tau=guarantee.tau,
        epsilon=epsilon,
        image_epsilon=epsilon * features if epsilon is not None else guarantee.epsilon,
        bound=next((_number(record, "bound") for record in records if "bound" in record.parameters), None),
        victims=len({record.parameters["victim"] for record in records}),
        seeds=len({record.seed for record in records}),
        features=features,
        raw_features=_mean_of_victims(records, "raw_features"),
        **_utility(scheme, str(one.parameters["keypoints"]), schemes),
        best=_best(trials, "release"),
        twice=_best(trials, "twice"),
        place=_best(trials, "place"),
        chance=_best(trials, "none"),
        named=_best(trials, "release", lambda trial: trial.exact.mean) if words else None,
        private_best=_best([trial for trial in trials if trial.private], "release", _private_near),
        private_sent=_sent(records, "private"),
        mapped_sent=_sent(records, "mapped"),
        private_raw=_raw(records, "private"),
        mapped_raw=_raw(records, "mapped"),
        trials=trials,
        skipped=tuple(_skipped(measured)),
        missing=len(everything.difference(has)),
        expected=len(everything),
    )


def _guarantee(records: Sequence[Record]) -> Guarantee:
    """The claim that the records of a scheme state."""
    stating = next((record for record in records if "guarantee" in record.parameters), None)
    if stating is None:
        return _unstated_guarantee(records[0])
    kind, unit = (str(stating.parameters.get(name)) for name in ("guarantee", "guarantee_unit"))
    try:
        epsilon, tau = (_number(stating, f"guarantee_{name}") for name in ("epsilon", "tau"))
        return Guarantee(kind, epsilon, unit, tau)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"a record of scheme {stating.scheme} states no guarantee: {error}") from error


# Only for records that were stored before records stated their guarantee: a new defense has no place here.
_KINDS_OF_OLD: dict[str, GuaranteeKind] = {
    "identity": "none",
    "subset": "local-dp",
    "naive": "local-dp",
    "metric": "metric-dp",
}


def _unstated_guarantee(record: Record) -> Guarantee:
    """The claim of a scheme whose records do not state it, from the name of its defense."""
    kind = _KINDS_OF_OLD.get(str(record.parameters.get("then") or record.parameters["defense"]))
    epsilon = _number(record, "epsilon")
    if kind is None:
        return Guarantee("empirical")
    return Guarantee("none") if epsilon is None else Guarantee(kind, epsilon)


def _number(record: Record, name: str) -> float | None:
    value = record.parameters.get(name)
    return None if value is None else float(str(value))


def _whole(record: Record, name: str) -> int | None:
    value = _number(record, name)
    return None if value is None else int(value)


def _mean_of_victims(records: Iterable[Record], name: str) -> float:
    """A photograph counts once a seed, however many attacks were run on it."""
    return fmean({(r.seed, r.parameters["victim"]): float(str(r.parameters[name])) for r in records}.values())


def _utility(scheme: str, keypoints: str, schemes: dict[str, _Measured]) -> dict[str, Spread | None]:
    raw = schemes["identity"]["utility", "one"]
    same = dict.fromkeys(SIDES, raw)
    if keypoints != "all":
        same = {sides: schemes.get(f"identity-{keypoints}", {}).get(("utility", sides), {}) for sides in SIDES}
    values: dict[str, Spread | None] = {}
    for sides in SIDES:
        own = schemes[scheme].get(("utility", sides), {})
        values[f"utility_{sides}"] = _ratio(own, _RIGHT_VERIFIED, raw, _RIGHT_VERIFIED)
        values[f"kept_{sides}"] = _ratio(own, _RIGHT_VERIFIED, same[sides], _RIGHT_VERIFIED)
        values[f"accuracy_{sides}"] = _ratio(own, _RIGHT, own, _MATCHES)
        values[f"right_{sides}"] = Spread.of(
            [fmean(_counts(record)[_RIGHT_VERIFIED] for record in members) for members in _by_seed(own.values())]
        )
    return values


def _ratio(own: dict[_Pair, Record], part: int, other: dict[_Pair, Record], whole: int) -> Spread | None:
    """Sums over the photographs that both have, divided; one quotient a seed."""
    shares = []
    for seed in sorted({seed for seed, _ in own}):
        common = [pair for pair in own if pair[0] == seed and pair in other]
        total = sum(_counts(other[pair])[whole] for pair in common)
        if total:
            shares.append(sum(_counts(own[pair])[part] for pair in common) / total)
    return Spread.of(shares)


def _counts(record: Record) -> tuple[float, ...]:
    return record.value if isinstance(record.value, tuple) else (record.value,)


def _by_seed(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record.seed, []).append(record)
    return list(groups.values())


def _trials(measured: _Measured) -> Iterable[TrialRow]:
    for (sort, name), pairs in measured.items():
        chosen = [record for record in pairs.values() if record.metric == METRIC]
        if sort == "attack" and chosen:
            yield TrialRow(
                attack=name,
                adversary=str(chosen[0].parameters["adversary"]),
                victims=len({record.parameters["victim"] for record in chosen}),
                count=sum(record.count for record in chosen),
                below_near=_measured(chosen, "below_near"),
                below_close=_measured(chosen, "below_close"),
                exact=_measured(chosen, "exact"),
                median=_measured(chosen, "median", lambda record: 1),
                released_near=_released(chosen),
                **{side: _recovered(list(pairs.values()), side) for side in CONTENT},
            )


def _released(records: list[Record]) -> Spread | None:
    """Guesses near the concealed descriptor; None where there is no concealer."""
    if any("released_below_near" not in record.parameters for record in records):
        return None
    means = [
        sum((_number(record, "released_below_near") or 0.0) * record.count for record in members)
        / sum(record.count for record in members)
        for members in _by_seed(records)
    ]
    return Spread.of(means)


def _recovered(records: list[Record], side: str) -> Recovered | None:
    """What comes back of one side; nothing does of a photograph of which nothing is sent."""
    whole = [
        record
        for record in records
        if f"{side}_sent" in record.parameters
        and (record.metric == METRIC or record.parameters[f"{side}_sent"] == 0)
        and (_count(record, f"{side}_scored") or not _count(record, f"{side}_sent"))
    ]
    near, close = (_share_of_raw(whole, side, what) for what in ("near", "close"))
    return None if near is None or close is None else Recovered(near, close)


def _share_of_raw(records: list[Record], side: str, what: str) -> Spread | None:
    """Of the sent features of one side as many are taken to be guessed as of those that were attacked."""
    shares = []
    for members in _by_seed(records):
        raw = sum(_count(record, f"{side}_raw") for record in members)
        hits = sum(
            _count(record, f"{side}_{what}") / max(_count(record, f"{side}_scored"), 1) * _count(record, f"{side}_sent")
            for record in members
        )
        if raw:
            shares.append(hits / raw)
    return Spread.of(shares)


def _sent(records: Iterable[Record], side: str) -> Spread | None:
    """The share of the raw features of one side that are sent."""
    once = {(record.seed, record.parameters["victim"]): record for record in records}
    shares = []
    for members in _by_seed(record for record in once.values() if f"{side}_sent" in record.parameters):
        raw = sum(_count(record, f"{side}_raw") for record in members)
        if raw:
            shares.append(sum(_count(record, f"{side}_sent") for record in members) / raw)
    return Spread.of(shares)


def _raw(records: Iterable[Record], side: str) -> int:
    """Raw features of one side in all photographs."""
    of_victims = {record.parameters["victim"]: _count(record, f"{side}_raw") for record in records}
    return round(sum(of_victims.values()))


def _count(record: Record, name: str) -> float:
    return _number(record, name) or 0.0


def _private_near(trial: TrialRow) -> float:
    return trial.private.near.mean if trial.private else 0.0


def _measured(
    records: list[Record], name: str, weight: Callable[[Record], int] = lambda record: record.count
) -> Spread:
    """A figure of an attack, weighted over the photographs of a seed."""
    place = MEASURED.index(name)
    means = [
        sum(_counts(record)[place] * weight(record) for record in members) / sum(weight(record) for record in members)
        for members in _by_seed(records)
    ]
    return Spread(fmean(means), min(means), max(means))


def _best(
    trials: Sequence[TrialRow],
    adversary: str,
    value: Callable[[TrialRow], float] = lambda trial: trial.below_near.mean,
) -> TrialRow | None:
    """The largest value; among equals more guesses below NEAR, then below CLOSE, then exact ones, then the first."""
    chosen = [trial for trial in trials if trial.adversary == adversary]
    return max(
        chosen,
        key=lambda trial: (value(trial), trial.below_near.mean, trial.below_close.mean, trial.exact.mean),
        default=None,
    )


def _skipped(measured: _Measured) -> Iterable[SkippedTrial]:
    for (_, name), pairs in measured.items():
        reasons: dict[str, set[object]] = {}
        for record in pairs.values():
            if record.metric == SKIPPED:
                reasons.setdefault(str(record.parameters["reason"]), set()).add(record.parameters["victim"])
        for reason, victims in reasons.items():
            yield SkippedTrial(name, reason, len(victims))
