"""Scores of heads and models against every null, the nulls themselves, effective depths, and what models are."""

from typing import Any

import numpy as np
from entries import Entries, public

# Options of a null as a caller wrote them before nulls were objects, and as an object's.
NULLS = {
    "gaussian": {},
    "analytic": {"baseline": "analytic"},
    "simulated": {"draws": 400, "seed": 3},
    "signs": {"null": "signs", "draws": 99},
    "axes": {"null": "axes", "draws": 99},
}


def collect(entries: Entries) -> None:
    """Collect all entries of this section."""
    import rmtbase

    rng = np.random.default_rng(9)
    for label, shape in {"in the atlas": (4, 16, 128), "not in it": (4, 8, 40)}.items():
        w_q = rng.standard_normal(shape) * 0.02
        w_k = rng.standard_normal((2, *shape[1:]))
        w_q[1] += 0.5 * np.outer(rng.standard_normal(shape[1]), rng.standard_normal(shape[2]))
        for name, options in NULLS.items():
            entries.take(f"score_heads {name}, {label}", lambda q=w_q, k=w_k, o=options: _heads_of(q, k, **o))
    table = rmtbase.baseline(40, 8, draws=300)
    entries.take("score_heads of a table", lambda: _heads_of(w_q, w_k, baseline=table))
    for name, options in NULLS.items():
        entries.take(f"score {name}", lambda o=options: rmtbase.score("demo", matrices="none", **_null(o)))
    entries.take("score spectra", lambda: rmtbase.score("demo", matrices="spectra"))
    tree = rmtbase.score(public("models.open_model")("demo", public("models.demo_revisions")()[0]))
    entries.add("score revision", tree)
    entries.take("summarize_scores", lambda: public("results.scores.summarize_scores")(tree))
    entries.take("sentences", lambda: public("results.scores.summarize_scores")(rmtbase.score("demo")).sentences())
    entries.take("overview", lambda: public("results.scores.summarize_scores")(rmtbase.score("demo")).overview())
    entries.take("draws_for", lambda: [public("nulls.draws_for")(count) for count in (1, 12, 144, 5000)])
    _nulls(entries, table)
    _depths(entries, rng)
    _models(entries)


def _heads_of(*arguments: object, **options: object) -> object:
    """Score the heads of one layer."""
    import rmtbase

    return rmtbase.score_heads(*arguments, **_null(options))["heads"].to_dataset().isel(layer=0, drop=True)


def _null(options: dict[str, Any]) -> dict[str, Any]:
    """Options of one installation: as they are, or a null made of them where nulls are objects."""
    from rmtbase import nulls

    if not hasattr(nulls, "Null") or not options:
        return options
    if "baseline" in options:
        return {"null": options["baseline"]}
    return {"null": nulls.find_null(**{"null": "gaussian"} | options)}


def _nulls(entries: Entries, table: object) -> None:
    makers = {
        "AnalyticNull": lambda: public("nulls.AnalyticNull")(40, 8),
        "AtlasNull": lambda: public("nulls.AtlasNull")(128, 16, public("nulls.atlas_case")(128, 16)),
        "GaussianNull": lambda: public("nulls.GaussianNull").from_baseline(table, 40, 8, "a table"),
    }
    for name, make in makers.items():
        try:
            null = make()
        except Exception as error:
            entries.add(f"{name}/raises", str(error))
            continue
        observed = null.mean + np.linspace(-5, 5, 11)[:, None] * null.std
        for attribute in (
            "mean",
            "std",
            "quantile",
            "edge_quantiles",
            "p_value_floor",
            "method",
            "description",
            "draws",
        ):
            entries.take(f"{name}.{attribute}", lambda null=null, attribute=attribute: getattr(null, attribute))
        for method in ("p_value", "omnibus_p_value", "distance"):
            entries.take(f"{name}.{method}", lambda n=null, m=method, x=observed: getattr(n, m)(x))
        for method in ("spectrum", "record"):
            entries.take(f"{name}.{method}", lambda null=null, method=method: getattr(null, method)())


def _depths(entries: Entries, rng: np.random.Generator) -> None:
    matrix = np.eye(24) + rng.standard_normal((24, 24)) / np.sqrt(24)
    for options in ({}, {"part": "update"}, {"distance": "kolmogorov_smirnov"}, {"sigma": [0.5, 1.0]}, {"sigma": None}):
        entries.call("results.depth.effective_depth", matrix, depths=range(1, 5), draws=19, **options)
    options = {"components": ["mlp_in"], "depths": range(1, 4), "draws": 19, "width": 32}
    entries.take("effective_depths", lambda: public("results.depth.depth")("demo", **options))


def _models(entries: Entries) -> None:
    entries.take("known_models", lambda: list(public("models.known_models")()))
    entries.take("supported_architectures", lambda: public("models.supported_architectures")())
    entries.take("demo_revisions", lambda: public("models.demo_revisions")())
    for name in ("gpt2", "llama-3.1-8b", "demo", "pythia-70m", "nothing"):
        entries.call("models.head_shape", name)
    model = public("models.open_model")("demo")
    words = ("architecture", "config", "n_layers", "n_heads", "n_key_heads", "d_model", "d_head", "components", "notes")
    entries.take("model", lambda: {word: getattr(model, word) for word in words})
    for component in model.components:
        entries.take(f"matrix of {component}", lambda component=component: model.matrix(0, component))
