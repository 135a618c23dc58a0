"""The atlas: small, whole, described, and refused where it is damaged."""

import json

import numpy as np
import pytest
import xarray as xr
from atlas_metadata import datacite
from compact_atlas import compact_baseline, merge_atlases, smallest_kept

import rmtbase
from rmtbase.errors import MissingFileError, ParameterError, TableError
from rmtbase.nulls import RATIO, STEP, count_bound, kept_ranks
from rmtbase.tables import ATLAS_SCHEMA, open_atlas_case, open_table, write_table

SHAPES = ((24, 6), (12, 4), (40, 6))


@pytest.fixture(scope="module")
def tables():
    return [rmtbase.baseline(d, h, draws=300, normalization="none") for d, h in SHAPES]


@pytest.fixture(scope="module")
def atlas(tables):
    return merge_atlases([compact_baseline(table) for table in tables], plan_hash="0123")


@pytest.fixture(scope="module")
def path(atlas, tmp_path_factory):
    return write_table(atlas, tmp_path_factory.mktemp("atlas") / "atlas.nc")


def test_an_atlas_is_described_comes_back_from_its_file_and_holds_the_tables(atlas, path, tables):
    assert set(ATLAS_SCHEMA) <= set(atlas.variables)
    for name, variable in ATLAS_SCHEMA.items():
        units = {"units": variable.units} if variable.units else {}
        assert atlas[name].attrs == {"long_name": variable.long_name, **units}

    assert list(zip(atlas["d_model"].values, atlas["d_head"].values, strict=True)) == [(12, 4), (24, 6), (40, 6)]
    xr.testing.assert_identical(open_table(path, "atlas"), atlas)
    case = open_atlas_case(path, 24, 6)
    assert case is not None
    xr.testing.assert_identical(case.drop_attrs(), atlas.isel(case=1).drop_attrs())
    assert case.attrs == atlas.attrs
    assert [open_atlas_case(path, *shape) for shape in ((24, 4), (6, 24), (25, 6))] == [None] * 3
    together = rmtbase.baseline([12, 24, 40], [4, 6, 6], draws=300, normalization="none")
    for name in ATLAS_SCHEMA:
        np.testing.assert_array_equal(compact_baseline(together)[name], atlas[name], err_msg=name)
    for name in ("mean", "std", "standard_error", "quantile"):
        np.testing.assert_array_equal(atlas[name].isel(case=1), tables[0][name].isel(case=0), err_msg=name)
    for case, table in ((1, tables[0]), (0, tables[1])):
        h = int(table["d_head"][0])
        kept, full = atlas.isel(case=case).isel(index=slice(h)), table.isel(case=0)
        name = "eigenvalue_quantile_self_normalized"
        error = np.abs(kept[name] - full[name]).values
        rounding = 1e-7 * np.abs(full[name]).values  # float32
        assert (error <= full["eigenvalue_std"].values[:, None] / 512 + rounding).all()
        for name in ("eigenvalue_mean", "density", "density_standard_error"):
            np.testing.assert_allclose(kept[name], full[name], rtol=1e-6)
    assert np.isnan(atlas["eigenvalue_mean"].values[0, 4:]).all()


def test_provenance_and_datacite_name_software_seed_plans_and_all_that_is_mandatory(atlas, tables):
    record = json.loads(atlas.attrs["provenance"])
    assert record["plan_hash"] == "0123"
    assert atlas.attrs["seed"] == 0
    (simulation,) = record["simulations"]  # made alike, they are told once
    assert [shape[:3] for shape in simulation["shapes"]] == [[*shape, 300] for shape in SHAPES]
    assert simulation["software"]["jax"]
    assert simulation["numerics"]
    record = json.loads(datacite())
    for field in ("creators", "titles", "publisher", "publicationYear", "types", "schemaVersion"):
        assert record[field], field
    assert record["types"]["resourceTypeGeneral"] == "Dataset"
    assert "doi" not in record
    assert "identifiers" not in record
    assert atlas.attrs["title"] == record["titles"][0]["title"]
    assert atlas.attrs["creator"] == record["creators"][0]["name"]
    assert atlas.attrs["license"] == record["rightsList"][0]["rightsIdentifier"]
    assert atlas.attrs["summary"] == record["descriptions"][0]["description"]
    assert atlas.attrs["keywords"].split(", ") == [subject["subject"] for subject in record["subjects"]]


def test_tables_and_atlases_that_do_not_go_together_are_refused(tables):
    for units in ({"normalization": "sqrt_d"}, {"normalization": "none", "sigma": 0.02}):
        with pytest.raises(ParameterError, match="table"):
            compact_baseline(rmtbase.baseline(12, 4, draws=20, **units))
    with pytest.raises(ParameterError, match="sample"):
        compact_baseline(tables[0].drop_vars(["sample", "sigma_q_estimate", "sigma_k_estimate", "draw"]))
    one = compact_baseline(tables[0])
    with pytest.raises(ParameterError, match="at least one"):
        merge_atlases([])
    with pytest.raises(ParameterError, match="each shape once"):
        merge_atlases([one, one])
    other = compact_baseline(rmtbase.baseline(12, 4, draws=20, seed=1, normalization="none"))
    with pytest.raises(ParameterError, match="one seed"):
        merge_atlases([one, other])
    few, many = compact_baseline(rmtbase.baseline(64, 4, draws=50, normalization="none")), compact_baseline(tables[0])
    both = merge_atlases([many, few])
    assert both["draws"].values.tolist() == [50, 300]
    finite = np.isfinite(both["largest_distance"].values).sum(axis=1)
    assert finite.tolist() == [few.sizes["rank"], many.sizes["rank"]]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_a_truncated_atlas_is_refused(share, path, tmp_path):
    whole = path.read_bytes()
    damaged = tmp_path / "atlas.nc"
    damaged.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(TableError):
        open_table(damaged, "atlas")
    with pytest.raises(TableError):
        open_atlas_case(damaged, 24, 6)
    with pytest.raises(MissingFileError):
        open_table(tmp_path / "none.nc", "atlas")


@pytest.mark.exhaustive
def test_flipped_bytes_are_seen_or_change_nothing(atlas, path, tmp_path):
    whole = path.read_bytes()
    seen = 0
    for place in np.random.default_rng(5).integers(len(whole), size=60):
        content = bytearray(whole)
        content[place] ^= 0xFF
        damaged = tmp_path / f"{place}.nc"  # a name of its own: HDF5 may hold on to a file that it failed to open
        damaged.write_bytes(content)
        try:
            found = open_table(damaged, "atlas")
        except TableError:
            seen += 1
            continue
        for name in ATLAS_SCHEMA:
            np.testing.assert_array_equal(found[name], atlas[name], err_msg=f"byte {place}: {name}")
    assert seen > 5  # half of so small a file is room that HDF5 keeps free


@pytest.mark.parametrize(("change", "said"), [
    (lambda a: a.drop_vars("largest_distance"), "largest_distance"),
    (lambda a: a.assign(std_self_normalized=0 * a["std_self_normalized"]), "std_self_normalized"),
    (lambda a: a.assign(order_statistic_lower=a["order_statistic_upper"]), "order_statistic_lower"),
    (lambda a: a.assign(largest_distance=np.nan * a["largest_distance"]), "checksum"),
    (lambda a: a.assign_coords(rank=a["rank"].values[::-1]), "rank"),
    (lambda a: a.assign_coords(d_model=a["d_model"] + 1), "checksum"),
    (lambda a: a.assign_coords(statistic=a["statistic"].values[::-1]), "checksum"),
    (lambda a: a.assign(draws=0 * a["draws"]), "draws"),
    (lambda a: a.assign_attrs(schema_version="9.0"), "schema version"),
    (lambda a: a.assign_attrs(kind="scores"), "kind"),
])  # fmt: skip
def test_contents_that_are_no_atlas_are_refused(change, said, atlas, tmp_path):
    damaged = tmp_path / "atlas.nc"
    write_table(change(atlas), damaged)
    with pytest.raises(TableError, match=said):
        open_table(damaged, "atlas")


def test_an_atlas_is_no_baseline_table_nor_the_reverse(path, tables, tmp_path):
    with pytest.raises(TableError, match="atlas"):
        open_table(path, "baseline")
    table = write_table(tables[0], tmp_path / "table.nc")
    with pytest.raises(TableError, match="baseline"):
        open_table(table, "atlas")
    with pytest.raises(TableError, match="baseline"):
        open_atlas_case(table, 24, 6)


SAMPLES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "long-tailed": lambda rng, n: rng.standard_cauchy(n),
    "with ties": lambda rng, n: np.round(rng.standard_normal(n), 1),
    "all alike": lambda rng, n: np.zeros(n),
}


@pytest.mark.parametrize("draws", [2, 3, 33, 34, 100, 51_200, 1_000_000])
def test_ranks_rise_from_one_within_the_draws(draws):
    ranks = kept_ranks(draws)
    assert ranks[0] == 1
    assert (np.diff(ranks) >= 1).all()
    assert draws / RATIO - 1 <= ranks[-1] <= draws


def test_few_ranks_stand_for_many_draws_and_kept_values_are_rounded_down():
    np.testing.assert_array_equal(kept_ranks(51_200)[:33], np.arange(1, 34))
    assert kept_ranks(51_200).size < 300
    assert kept_ranks(1_000_000).size < 400
    sample = np.sort(np.random.default_rng(4).standard_normal(1000))
    ranks = kept_ranks(1000)
    kept = smallest_kept(sample, ranks).astype(float)
    assert (kept <= sample[ranks - 1]).all()
    assert (sample[ranks - 1] - kept < STEP).all()
    np.testing.assert_array_equal(kept, np.round(kept / STEP) * STEP)
    sample = np.array([-1e30, -1e9 - 0.3, 1e9 + 0.3, 1e30])
    assert (smallest_kept(sample, np.arange(1, 5)).astype(float) <= sample).all()


@pytest.mark.parametrize("draws", [2, 40, 5000])
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_count_is_never_under_the_full_samples_and_hardly_over(kind, draws):
    rng = np.random.default_rng(3)
    sample = np.sort(SAMPLES[kind](rng, draws))
    ranks = kept_ranks(draws)
    kept = smallest_kept(sample, ranks)
    observed = np.concatenate([SAMPLES[kind](rng, 2000), sample, [-1e300, 1e300]])
    bound = count_bound(observed, kept, ranks, draws)
    assert count_bound(np.array([-np.inf, np.inf]), kept, ranks, draws).tolist() == [0, draws]
    assert (bound >= np.searchsorted(sample, observed, side="right")).all()
    # Rounding, to steps or to float32, may count a draw that lies a little on the other side of the observed value.
    nearly = np.searchsorted(sample, observed + np.maximum(STEP, 2.0**-23 * np.abs(observed)), side="right")
    assert (bound + 1 <= RATIO * (nearly + 1) + 1e-9).all()
