"""Differences of rounded checkpoints: how often noise has a learned direction, and how often planted ones are found.

    python studies/rounded_differences/study.py

adds to results.json of this folder (or --out) what it lacks; twenty minutes of one core in all, everything seeded.
``--tables`` prints the tables of the README.
"""

import argparse
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from rmtbase.linalg import product_singular_values
from rmtbase.results.signal import spectral_signal
from rmtbase.results.signal._sign_flips import SignFlips

HERE = Path(__file__).resolve().parent
LEVEL, SIGMA, RANK, THRESHOLDS = 0.05, 0.02, 4, 2.0
SHAPES = ((48, 192), (64, 64))
CHANGES = (1e-6, 1e-5, 1e-4, 1e-3)
FORMATS = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp8 e4m3": ml_dtypes.float8_e4m3fn,
    "fp8 e5m2": ml_dtypes.float8_e5m2,
    "fp8 e4m3, scaled": ml_dtypes.float8_e4m3fn,
}
BASES = {
    "stored": "the change is added to the stored weights, and the sum rounded",
    "kept": "the change is added to weights in full precision, and both rounded",
}
FEWEST = 0.5  # share of draws that must be testable for a planted update to be looked for


def rounded(weights: np.ndarray, form: str) -> np.ndarray:
    """Weights as they are stored; scaled ones with the factor that brings 0.1 to 448, and cut there.

    448 is the largest number of e4m3, which has no infinity: what is larger would be stored as NaN.
    """
    if not form.endswith("scaled"):
        return weights.astype(np.float32).astype(FORMATS[form]).astype(np.float64)
    factor = 448.0 / 0.1
    scaled = np.clip(weights * factor, -448.0, 448.0)
    return scaled.astype(np.float32).astype(FORMATS[form]).astype(np.float64) / factor


def learned(rng: np.random.Generator, shape: tuple[int, int], strength: float, rank: int) -> np.ndarray:
    """Directions of one strength."""
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in shape)
    return strength * left @ right.T


def differences(
    shape: tuple[int, int], form: str, base: str, change: float, strength: float, seed: int, trained: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Differences of two rounded matrices, and the noise that was added between them, without end."""
    rng = np.random.default_rng(seed)
    while True:
        weights = SIGMA * rng.standard_normal(shape)
        if trained:  # the base has learned eight directions at five thresholds
            weights += learned(rng, shape, 5.0 * SIGMA * math.prod(shape) ** 0.25, 8)
        if base == "stored":
            weights = rounded(weights, form)
        noise = change * rng.standard_normal(shape)
        signal = learned(rng, shape, strength, RANK) if strength else 0.0
        yield rounded(weights + noise + signal, form) - rounded(weights, form), noise


def share(flags: list[bool]) -> list[float]:
    """Estimate a share and its standard error."""
    if not flags:
        return []
    p = float(np.mean(flags))
    return [round(p, 4), round(math.sqrt(max(p * (1 - p), 1 / len(flags) ** 2) / len(flags)), 4)]


def size(shape: tuple[int, int], format: str, base: str, change: float, trained: bool, trials: int, seed: int) -> dict:
    """Noise alone: how often there is a direction by signs, and by the law of normal entries."""
    flips, found, normal, nonzero = SignFlips(LEVEL, 199), [], [], []
    slope = square = 0.0
    drawn = differences(shape, format, base, change, 0.0, seed, trained)
    for _ in range(trials):
        delta, noise = next(drawn)
        slope += np.vdot(delta, noise) / noise.size / change**2 / trials
        square += np.mean(delta**2) / trials
        nonzero.append(np.count_nonzero(delta) / delta.size)
        found.append(flips.count(delta))
        if delta.any():
            of = spectral_signal(np.linalg.svd(delta, compute_uv=False) ** 2, shape, LEVEL)
            normal.append(bool(of.first_p_value <= LEVEL))
    known = [one.number for one in found if not one.reason]
    return {
        "shape": shape, "format": format, "base": base, "trained": trained, "change": change, "trials": trials,
        "elements_that_change": float(np.mean(nonzero)),
        "not_testable": share([bool(one.reason) for one in found]),
        "directions_in_noise": share([number > 0 for number in known]),
        "by_normal_entries": share(normal),
        "std": math.sqrt(square), "response": float(slope),
    }  # fmt: skip


def power(
    shape: tuple[int, int], format: str, base: str, change: float, std: float, response: float, trials: int, seed: int
) -> dict:
    """Four directions at twice the threshold in the difference: how many are found.

    ``response`` is what of a small change arrives in the difference in the mean: so much more is planted.
    """
    strength = THRESHOLDS * std * math.prod(shape) ** 0.25 / response
    flips, number = SignFlips(LEVEL, 199), []
    drawn = differences(shape, format, base, change, strength, seed)
    for _ in range(trials):
        found = flips.count(next(drawn)[0])
        number.append(-1.0 if found.reason else found.number)
    return {
        "shape": shape, "format": format, "base": base, "change": change, "trials": trials,
        "any": share([one >= 1 for one in number]),
        "all_four": share([one >= RANK for one in number]),
        "exactly_four": share([one == RANK for one in number]),
        "too_many": share([one > RANK for one in number]),
    }  # fmt: skip


def products(format: str, change: float, trials: int, seed: int) -> dict:
    """W_QK of two differences, (128, 32, 128)."""
    flips, shape, found, normal = SignFlips(LEVEL, 199), (32, 128), [], []
    drawn = differences(shape, format, "stored", change, 0.0, seed)
    for _ in range(trials):
        both = [next(drawn)[0] for _ in range(2)]
        found.append(flips.count(*both))
        of = spectral_signal(product_singular_values(*both) ** 2, (128, 32, 128), LEVEL)
        normal.append(bool(of.first_p_value <= LEVEL))
    known = [one.number for one in found if not one.reason]
    return {
        "dims": (128, 32, 128), "format": format, "base": "stored", "change": change, "trials": trials,
        "not_testable": share([bool(one.reason) for one in found]),
        "directions_in_noise": share([number > 0 for number in known]),
        "by_normal_entries": share(normal),
    }  # fmt: skip


def sequential(dims: tuple[int, ...], planted: int, multiple: float, trials: int, seed: int) -> dict:
    """Measure how often the count is too large, and how often right, in normal noise with so many directions."""
    rng, number, flips = np.random.default_rng(seed), [], SignFlips(LEVEL, 199)
    for _ in range(trials):
        noise = [rng.standard_normal((dims[1], n)) for n in (dims[0], *dims[2:])]
        own = noise[0].shape
        if planted:
            noise[0] += learned(rng, own, multiple * math.prod(own) ** 0.25, planted)
        number.append(flips.count(*noise).number)
    return {
        "dims": dims, "planted": planted, "multiple": multiple, "trials": trials,
        "too_many": share([one > planted for one in number]), "exact": share([one == planted for one in number]),
    }  # fmt: skip


def tables(results: dict) -> str:
    """Format the tables of the README, in per cent."""

    def percent(found: list[float]) -> str:
        return f"{100 * found[0]:.1f} ± {100 * found[1]:.1f}" if found else "–"

    def tested(one: dict) -> bool:
        return one["not_testable"][0] < 1.0

    lines = [
        "| format | base | change | shape | elements that change | cannot be tested | by signs | by normal entries |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for one in results["size"]:
        base = "stored, learned" if one["trained"] else one["base"]
        lines.append(
            f"| {one['format']} | {base} | {one['change']:g} | {one['shape'][0]} × {one['shape'][1]} | "
            f"{100 * one['elements_that_change']:.1f} | {100 * one['not_testable'][0]:.1f} | "
            f"{percent(one['directions_in_noise']) if tested(one) else '–'} | {percent(one['by_normal_entries'])} |"
        )
    lines += ["", "| dims | planted | too many | exactly so many |", "|---|---|---|---|"]
    for one in results["sequential"]:
        dims = " × ".join(map(str, one["dims"]))
        planted = f"{one['planted']} at {one['multiple']:g}"
        lines.append(f"| {dims} | {planted} | {percent(one['too_many'])} | {percent(one['exact'])} |")
    lines += [
        "",
        "| W_QK of two differences, dims | format | change | by signs | by normal entries |",
        "|---|---|---|---|---|",
    ]
    for one in results["products"]:
        dims = " × ".join(map(str, one["dims"]))
        found = f"{percent(one['directions_in_noise'])} | {percent(one['by_normal_entries'])}"
        lines.append(f"| {dims} | {one['format']} | {one['change']:g} | {found} |")
    lines += [
        "",
        "| format | base | change | shape | any found | all four | more than four |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results["power"]:
        found = " | ".join(percent(one[name]) for name in ("any", "all_four", "too_many"))
        where = f"{one['change']:g} | {one['shape'][0]} × {one['shape'][1]}"
        lines.append(f"| {one['format']} | {one['base']} | {where} | {found} |")
    return "\n".join(lines)


def main() -> None:
    """Make what results.json lacks, and write it after each cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of trials")
    parser.add_argument("--tables", action="store_true", help="print the README's tables of results.json")
    given = parser.parse_args()
    if given.tables:
        print(tables(json.loads((given.out / "results.json").read_text())))
        return
    path = given.out / "results.json"
    parts = ("size", "power", "products", "sequential")
    results: dict = json.loads(path.read_text()) if path.exists() else {part: [] for part in parts}

    def cell(part: str, make: Callable[..., dict], trials: int, **what: object) -> dict:
        """Read one cell from the file, or make it."""
        wanted = json.loads(json.dumps(what))
        for found in results[part]:
            if all(found[name] == value for name, value in wanted.items()):
                return found
        seed = int.from_bytes(hashlib.sha256(json.dumps([part, wanted]).encode()).digest()[:4], "little")
        made = json.loads(json.dumps(make(**what, trials=max(2, round(given.scale * trials)), seed=seed)))
        results[part].append(made)
        print(part, json.dumps(made), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        return made

    of_noise = [
        {"shape": shape, "format": form, "base": base, "change": change, "trained": False}
        for base in BASES for form in FORMATS for change in CHANGES for shape in SHAPES
    ]  # fmt: skip
    of_noise += [
        {"shape": SHAPES[0], "format": form, "base": "stored", "change": change, "trained": True}
        for form in ("bf16", "fp16") for change in (1e-5, 1e-4)
    ]  # fmt: skip

    def of_power(what: dict) -> None:
        of = cell("size", size, 200, **what)
        untold = of["not_testable"][0] > FEWEST or of["response"] < 0.01
        if not (untold or what["trained"]):
            where = {name: what[name] for name in ("shape", "format", "base", "change")}
            cell("power", functools.partial(power, std=of["std"], response=of["response"]), 20, **where)

    for dims in ((64, 64), (32, 128), (128, 32, 128)):
        for planted, multiple in ((1, 1.5), (4, 2.0), (8, 3.0)):
            cell("sequential", sequential, 50, dims=dims, planted=planted, multiple=multiple)
    for what in of_noise:
        of_power(what)
    for form in ("bf16", "fp16"):
        for change in (1e-5, 1e-4):
            cell("products", products, 100, format=form, change=change)


if __name__ == "__main__":
    main()
