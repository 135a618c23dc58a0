"""Draws at a fixed seed: every registered ensemble, plans and tables of them, elements, shared keys, resamplers."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from entries import Entries, public

ENSEMBLES: dict[str, list[dict[str, object]]] = {
    "gaussian_chain": [
        {"dims": (3, 5, 4)},
        {"dims": (6, 9, 4)},
        {"dims": (4, 6, 3, 5, 8)},
        {"dims": (5, 1, 2, 1, 4, 6)},
        {"dims": (4, 6, 3, 5), "method": "dense"},
    ],
    "gaussian_matrix": [{"n_rows": 4, "n_columns": 7}, {"n_rows": 7, "n_columns": 4, "method": "dense"}],
    "low_rank_product": [{"d_model": 9, "d_head": 4}, {"d_model": 64, "d_head": 8}, {"d_model": 16, "d_head": 16}],
    "residual_path": [
        {"d_model": 4, "depth": 3, "sigma": 0.7},
        {"d_model": 4, "depth": 4, "sigma": 0.5, "part": "update"},
        {"d_model": 4, "depth": 4, "sigma": 0.5, "part": "order", "order": 2},
    ],
    "initialized_matrix": [
        {"n_rows": 7, "n_columns": 4, "initializer": "normal", "mean": 0.1, "std": 0.5},
        {"n_rows": 4, "n_columns": 7, "initializer": "truncated_normal", "std": 0.5, "bound": 1.0},
        {"n_rows": 4, "n_columns": 7, "initializer": "kaiming_uniform", "a": 5**0.5},
        {"n_rows": 6, "n_columns": 8, "initializer": "uniform", "bound": 0.3},
        *({"n_rows": 6, "n_columns": 8, "initializer": name} for name in ("xavier_uniform", "xavier_normal")),
        *(
            {"n_rows": 8, "n_columns": 6, "initializer": name}
            for name in ("kaiming_normal", "torch_linear", "orthogonal")
        ),
        {"n_rows": 6, "n_columns": 8, "initializer": "small_init", "d_model": 8},
        {"n_rows": 6, "n_columns": 8, "initializer": "wang_init", "n_layers": 12, "d_model": 8},
        {"n_rows": 6, "n_columns": 8, "initializer": "scaled_normal", "n_layers": 12},
    ],
    "logistic_matrix": [{"n_rows": 4, "n_columns": 7, "scale": 0.02, "location": 0.01}],
    "student_t_matrix": [{"n_rows": 7, "n_columns": 4, "df": 2.5, "scale": 0.02}],
    "random_subspaces": [{"d_model": 11, "d_head": 4}],
}


ROWS = ("initialized_matrix", "logistic_matrix", "student_t_matrix")
"""Ensembles whose elements can be drawn as they are; chains only by ``method = "dense"``."""


def collect(entries: Entries) -> None:
    """Collect all entries of this section."""
    _ensembles(entries)
    _baselines(entries)
    _plans(entries)
    _others(entries)
    _atlas(entries)


def _spectra(entries: Entries, name: str, ensemble: object, **options: object) -> None:
    entries.take(f"{name}.name", lambda: [ensemble.name, ensemble.rank, ensemble.matrix_shape, ensemble.factor_sizes])
    entries.take(name, lambda: list(public("montecarlo.draw_spectra")(ensemble, 21, 5, **options)))


def _ensembles(entries: Entries) -> None:
    missing = set(public("ensembles.ENSEMBLES")) ^ set(ENSEMBLES)
    entries.add("ensembles without an example here", sorted(missing))
    for name, cases in ENSEMBLES.items():
        for parameters in cases:
            label = f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items())})"
            try:
                ensemble = public("ensembles.make_ensemble")(name, parameters)
            except Exception as error:
                entries.add(f"{label}/raises", str(error))
                continue
            _spectra(entries, label, ensemble)
            if hasattr(ensemble, "element_std"):
                entries.take(
                    f"{label}.elements", lambda one=ensemble: list(public("montecarlo.draw_elements")(one, 5, 3))
                )
    chain = public("ensembles.low_rank_product")(64, 8)
    for solver in ("svd", "gram", "device_svd", "device_gram"):
        _spectra(entries, f"solver {solver}", chain, solver=solver)
    _spectra(entries, "float32", chain, precision="float32")
    _spectra(entries, "from draw 7, in batches of 4", chain, start=7, batch=4)
    rng = np.random.default_rng(8)
    w_q, w_k = rng.standard_normal((2, 4, 12))
    _spectra(entries, "sign_flipped_head", public("ensembles.sign_flipped_head")(w_q, w_k))
    _spectra(entries, "axis_permuted_head", public("ensembles.axis_permuted_head")(w_q, w_k))
    entries.take("choose_solver", lambda: public("montecarlo.choose_solver")(chain))


def _baselines(entries: Entries) -> None:
    from rmtbase import baseline

    entries.take("baseline", lambda: baseline([32, 64], [8, 8], sigma=[1.0, (0.02, 0.5)], draws=300, seed=3))
    entries.take("baseline none", lambda: baseline(64, 8, draws=100, seed=1, normalization="none"))
    entries.take("baseline square", lambda: baseline(16, 16, draws=100))
    entries.take("baseline float32", lambda: baseline(64, 8, draws=100, precision="float32"))


def _plans(entries: Entries) -> None:
    run, make = public("montecarlo.run_in_memory"), public("montecarlo.make_plan")
    for name, cases in ENSEMBLES.items():
        entries.take(f"plan of {name}", lambda name=name, cases=cases: run(make(name, cases, 50, 2)))
        rows = cases if name in ROWS else [one for one in cases if one.get("method") == "dense"] or cases
        entries.take(
            f"elements of {name}",
            lambda name=name, rows=rows: run(make(name, rows, 9, 2, measure="elements", normalization="none")),
        )
    several = [{"d_model": 32, "d_head": 8}, {"d_model": 16, "d_head": 4, "sigma": [0.5, [0.1, 2.0]]}]
    plan = make("low_rank_product", several, 700, 4, chunk=250, keep_sample=False)
    entries.take("plan.record", plan.record)
    entries.take("plan.hash", lambda: plan.hash)
    entries.take("plan.chunks", lambda: [*plan.chunks])
    entries.take("plan.titles", lambda: [plan.name, plan.title, plan.description, plan.total_draws])
    entries.take("plan in chunks", lambda: run(plan))
    entries.take("compute_chunk", lambda: public("montecarlo.compute_chunk")(plan, next(iter(plan.chunks))))


def _others(entries: Entries) -> None:
    entries.take("simulate_gaussian_matrix", lambda: public("montecarlo.simulate_gaussian_matrix")(40, 12, 200, 3))
    chain = public("ensembles.low_rank_product")(32, 8, method="dense")
    normal = public("ensembles.make_ensemble")("initialized_matrix", {"n_rows": 9, "n_columns": 8, "std": 0.02})
    entries.take("element_baseline", lambda: public("montecarlo.element_baseline")([(32, 8), chain, normal], 12, 5))
    entries.take(
        "element_baseline in a range",
        lambda: public("montecarlo.element_baseline")((32, 8), 8, 5, 30, (-3.0, 3.0), keep_sample=False),
    )
    entries.take("element_edges", lambda: public("montecarlo.element_edges")(chain))
    entries.take("draw_elements", lambda: list(public("montecarlo.draw_elements")(chain, 5, 3)))
    entries.take("histogram_edges", lambda: public("laws.histogram_edges")(64, 8))
    entries.take("PROBABILITIES", lambda: public("laws.PROBABILITIES"))


def _atlas(entries: Entries) -> None:
    for shape in ((768, 64), (128, 16), (17, 3)):
        entries.take(f"atlas_case{shape}", lambda shape=shape: public("nulls.atlas_case")(*shape))
    entries.take("datacite", lambda: _maker("datacite", "atlas_metadata")())
    from rmtbase import baseline

    table = baseline(32, 8, draws=600, normalization="none")
    compact = _maker("compact_baseline", "compact_atlas")
    parts = [compact(table), compact(baseline(64, 8, draws=600, normalization="none"))]
    entries.add("compact_baseline", parts[0])
    entries.take("merge_atlases", lambda: _maker("merge_atlases", "compact_atlas")(parts))
    entries.take("self_normalized_sample", lambda: public("nulls.self_normalized_sample")(table.isel(case=0)))
    ranks = public("nulls.kept_ranks")(5000)
    entries.add("kept_ranks", ranks)
    kept = np.sort(np.random.default_rng(1).standard_normal(5000))[np.asarray(ranks) - 1]
    entries.take("count_bound", lambda: public("nulls.count_bound")(np.linspace(-4, 4, 99), kept, ranks, 5000))


def _maker(name: str, module: str) -> Callable[..., Any]:
    """Import the function of ``sims/`` that makes the atlas."""
    sys.path.append(str(Path(__file__).parents[2] / "sims"))
    return getattr(import_module(module), name)
