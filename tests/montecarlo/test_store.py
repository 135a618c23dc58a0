"""A chunk counts only if every byte of it is what was written; whatever else is found is named and drawn again."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from rmtbase.errors import MissingFileError, OutputError, StoreError, TableError
from rmtbase.montecarlo import make_plan, open_store
from telling import Told

MACHINE = {"jax": "1.2.3", "backend": "cpu"}


def arrays(seed=0, draws=10):
    rng = np.random.default_rng(seed)
    return {
        "statistic": rng.standard_normal((16, draws)),
        "eigenvalue": rng.standard_normal((4, draws)),
        "norm_squared": rng.standard_normal((1, draws)),
    }


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "table.nc.chunks"


@pytest.fixture
def store(folder, plan):
    with open_store(folder, plan) as store:
        store.record_settings(MACHINE, lambda: ["svd"])
        for number, chunk in enumerate(plan.chunks):
            store.write(chunk, arrays(number))
    return store


def missing(store):
    told = Told()
    return list(store.missing(told)), told.notes


def test_chunks_are_read_as_they_were_written_to_the_bit(store, plan):
    assert missing(store) == ([], [])
    for number, chunk in enumerate(plan.chunks):
        for name, array in arrays(number).items():
            found = store.read(chunk, name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(store.read(plan.chunks[3], "statistic", slice(2, 5)), arrays(3)["statistic"][2:5])
    assert store.read(plan.chunks[3], "statistic", slice(14, 99)).shape == (2, 10)
    odd = np.resize([np.nan, -0.0, np.inf, 5e-324], (16, 10))
    store.write(plan.chunks[0], arrays() | {"statistic": odd})
    assert store.unsound(plan.chunks[0]) is None
    assert store.read(plan.chunks[0], "statistic").tobytes() == odd.tobytes()


@pytest.mark.exhaustive
def test_a_flipped_bit_and_a_cut_anywhere_are_found(tmp_path):
    plan = make_plan("gaussian_matrix", [{"n_rows": 1, "n_columns": 1}], 2)
    with open_store(tmp_path / "little.chunks", plan) as store:
        store.record_settings(MACHINE, lambda: ["svd"])
        shapes = {"statistic": (16, 2), "eigenvalue": (1, 2), "norm_squared": (1, 2)}
        store.write(plan.chunks[0], {name: np.ones(shape) for name, shape in shapes.items()})
    path = store.path(plan.chunks[0])
    good = path.read_bytes()
    for place in range(len(good)):
        flipped = good[:place] + bytes([good[place] ^ 1 << (place % 8)]) + good[place + 1 :]
        for bad in (flipped, good[:place]):
            path.write_bytes(bad)
            assert store.unsound(plan.chunks[0]) is not None, place
    path.write_bytes(good + b"\0")
    assert "bytes" in str(store.unsound(plan.chunks[0]))
    path.write_bytes(good)
    assert store.unsound(plan.chunks[0]) is None


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def another_plan(store, path):
    other = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 120, 8, chunk=10)
    with open_store(path.parent.with_name("other.chunks"), other) as there:
        there.record_settings(MACHINE, lambda: ["svd"])
        there.write(other.chunks[2], arrays())
        shutil.copy(there.path(other.chunks[2]), path)


def instead(make):
    def damage(store, path):
        path.unlink()
        make(path)

    return damage


def a_folder(path):
    path.mkdir()
    (path / "kept").write_text("kept")


def signed(change):
    def damage(store, path):
        line, _, data = path.read_bytes()[:-32].partition(b"\n")
        header = json.loads(line)
        data = change(header, data) or data
        contents = json.dumps(header).encode() + b"\n" + data
        path.write_bytes(contents + hashlib.sha256(contents).digest())

    return damage


def half(header, data):
    header["arrays"] = {name: [dtype, [rows, 5]] for name, (dtype, (rows, _)) in header["arrays"].items()}
    return data[: len(data) // 2]


OTHER = "found a file that begins with"

DAMAGES = {
    "half of the draws": (signed(half), OTHER),
    "objects": (signed(lambda header, data: header["arrays"].update(statistic=["|O", [16, 10]])), OTHER),
    "a number of draws that is no integer": (signed(lambda header, data: header.update(count=10.0)), OTHER),
    "drawn under other settings": (signed(lambda header, data: header.update(store="0" * 64)), OTHER),
    "a header without end": (lambda store, path: path.write_bytes(b'{"kind": "' + b"x" * 10**6), OTHER),
    "a link to a device": (
        instead(lambda path: path.symlink_to("/dev/zero")),
        "it is a device; expected a regular file",
    ),
    "flipped in its numbers": (lambda store, path: flip(path, -40), "contents that do not fit their checksum"),
    "flipped in its checksum": (lambda store, path: flip(path, -9), "contents that do not fit their checksum"),
    "flipped in its header": (lambda store, path: flip(path, 40), OTHER),
    "truncated": (lambda store, path: os.truncate(path, path.stat().st_size - 8), "bytes of numbers; expected the"),
    "empty": (lambda store, path: os.truncate(path, 0), OTHER),
    "of another plan": (another_plan, OTHER),
    "another chunk of this plan": (lambda store, path: shutil.copy(store.path(store.plan.chunks[5]), path), OTHER),
    "a link to nothing": (instead(lambda path: path.symlink_to("nothing")), "no such file"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_no_sound_chunk_is_named_and_drawn_again(damage, words, store, plan):
    chunk = plan.chunks[2]
    path = store.path(chunk)
    damage(store, path)
    left, (said,) = missing(store)
    assert left == [chunk]
    assert said.startswith(f"not a sound chunk, drawn again: {path}: ")
    assert words in said
    if path.is_file() or not os.path.lexists(path):
        store.write(chunk, arrays(2))
        assert missing(store) == ([], [])


@pytest.mark.parametrize("damage", [instead(a_folder), instead(os.mkfifo)])
def test_what_a_chunk_cannot_replace_stops_the_run_and_stays(damage, store, plan, watch):
    damage(store, store.path(plan.chunks[2]))
    before = watch(store.folder)
    assert missing(store)[0] == [plan.chunks[2]]
    with pytest.raises(OutputError, match=r"it is a (folder|named pipe)"):
        store.write(plan.chunks[2], arrays(2))
    before.assert_untouched()


def test_a_chunk_that_is_damaged_while_it_is_merged_is_named(store, plan):
    path = store.path(plan.chunks[0])
    os.truncate(path, path.stat().st_size - 80)
    with pytest.raises(TableError, match="fewer numbers than"):
        store.read(plan.chunks[0], "norm_squared")
    path.unlink()
    with pytest.raises(MissingFileError, match="run the plan again"):
        store.read(plan.chunks[0], "norm_squared")


def test_linked_and_read_only_chunks_are_read_and_removed_like_any(store, plan, read_only, tmp_path):
    path = store.path(plan.chunks[1])
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with read_only(store.path(plan.chunks[0])):
        assert missing(store) == ([], [])
        np.testing.assert_array_equal(store.read(plan.chunks[0], "statistic"), arrays(0)["statistic"])
    store.path(plan.chunks[0]).chmod(0o444)
    with open_store(store.folder, plan) as again:
        again.remove()
    assert not store.folder.exists()
    assert (tmp_path / "elsewhere").exists()


def test_writes_that_a_folder_or_a_size_limit_stops_leave_the_other_chunks(
    store, plan, read_only, watch, file_size_limit
):
    before = watch(store.folder)
    with read_only(store.folder):
        for attempt in (lambda: store.write(plan.chunks[1], arrays()), store.remove):
            with pytest.raises(OutputError, match=r"table\.nc\.chunks.*Permission denied"):
                attempt()
    before.assert_untouched()
    before = watch(store.folder)
    with file_size_limit(1000), pytest.raises(OutputError, match="File too large"):
        store.write(plan.chunks[0], arrays())
    before.assert_untouched()


def test_folder_that_cannot_be_made_and_lock_that_cannot_be_had_are_said(plan, tmp_path, folder, read_only):
    refusal = pytest.raises(OutputError, match=r"the folder of the chunks cannot be made: Permission denied")
    with read_only(tmp_path), refusal, open_store(folder, plan):
        pass
    (folder / "lock").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot be locked"), open_store(folder, plan):
        pass


def refused(folder, plan, *words, watch):
    before = watch(folder) if folder.is_dir() else None
    with pytest.raises(StoreError) as caught, open_store(folder, plan):
        pass
    assert str(caught.value).startswith(f"{folder}: found ")
    for word in words:
        assert word in str(caught.value)
    if before is not None:
        before.assert_untouched()


def test_stores_of_another_plan_or_installation_are_refused_and_solvers_chosen_once(store, watch, plan):
    other = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 120, 8, chunk=10)
    refused(store.folder, other, "the chunks of another plan (seed: 7 there, 8 here)", "remove the folder", watch=watch)
    renamed = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 120, 7, chunk=10, name="x", title="y")
    with open_store(store.folder, renamed) as again:
        assert missing(again) == ([], [])
    with open_store(store.folder, plan) as again:
        assert again.record_settings(MACHINE, lambda: pytest.fail("chosen again")) == ["svd"]
        assert again.settings() == {**MACHINE, "solvers": ["svd"]}
    manifest = json.loads((store.folder / "store.json").read_text())
    assert manifest["draws"] == plan.draws_record
    assert (manifest["settings"], manifest["solvers"]) == (MACHINE, ["svd"])
    before = watch(store.folder)
    with open_store(store.folder, plan) as again, pytest.raises(StoreError) as caught:
        again.record_settings(MACHINE | {"jax": "1.3.0"}, lambda: ["svd"])
    assert "chunks of another installation (jax: 1.2.3 there, 1.3.0 here)" in str(caught.value)
    before.assert_untouched()


@pytest.mark.parametrize("content", [
    *("", "{", "[]", "{}", '{"kind": "rmtbase store"}', "\0" * 99, '{"kind": "other"}'), "[" * 100_000,
    '{"kind": "rmtbase store", "draws": ' + '{"a": ' * 900 + "1" + "}" * 900 + "}",
    '{"kind": "rmtbase store", "draws": 1, "solvers": {}, "settings": {}}',
    '{"kind": "rmtbase store", "solvers": ' + "9" * 5000 + "}", " " * (1 << 25),
], ids=lambda content: repr(content[:40]))  # fmt: skip
def test_damaged_or_hostile_manifest_is_refused(content, store, plan, watch):
    (store.folder / "store.json").write_text(content)
    refused(store.folder, plan, "unreadable store.json", "put back a copy", watch=watch)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(os.mkdir, "folder"), (os.mkfifo, "named pipe"), (lambda path: path.symlink_to("/dev/zero"), "device")],
)
def test_manifest_that_is_no_regular_file_is_refused_at_once(make, kind, store, plan, watch):
    (store.folder / "store.json").unlink()
    make(store.folder / "store.json")
    refused(store.folder, plan, f"unreadable store.json (it is a {kind}; expected a regular file)", watch=watch)


def edit(store, keys, to, checksum):
    path = store.folder / "store.json"
    manifest = json.loads(path.read_text())
    place = manifest
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    if checksum:
        record = {key: value for key, value in manifest.items() if key not in ("kind", "sha256")}
        manifest["sha256"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(manifest, indent=1))


EDITED = "it was changed after it was written"


@pytest.mark.parametrize(("keys", "to", "checksum", "words"), [
    (("solvers", 0), "gram", False, EDITED), (("settings", "jax"), "1.2.4", False, EDITED),
    (("draws", "seed"), 8, False, EDITED),
    (("draws", "seed"), 8, True, "the chunks of another plan (seed: 8 there, 7 here)"),
    (("draws",), [1], True, "it is not that of a store"), (("solvers",), ["qr"], True, "the solvers ['qr']"),
    (("solvers",), [], True, "the solvers []"), (("solvers",), "svd", True, "it is not that of a store"),
    (("more",), 1, True, "unreadable store.json"),
], ids=str)  # fmt: skip
def test_manifest_that_was_edited_is_refused_whatever_its_checksum(keys, to, checksum, words, store, plan, watch):
    edit(store, keys, to, checksum)
    refused(store.folder, plan, words, watch=watch)


def test_chunks_of_other_settings_are_drawn_again_where_a_manifest_was_made_anew_around_them(store, plan):
    edit(store, ("settings", "jax"), "1.3.0", True)
    with open_store(store.folder, plan) as again:
        left, said = missing(again)
    assert left == list(plan.chunks)
    assert all(OTHER in line for line in said)


def test_chunks_without_a_manifest_and_what_is_something_else_are_refused(store, folder, plan, watch):
    (folder / "store.json").unlink()
    chunks = "case-0000-draws-0000000000-0000000010.chunk and 11 more"
    refused(folder, plan, f"no store.json, but {chunks}", watch=watch)
    shutil.rmtree(folder)
    folder.write_text("kept")
    refused(folder, plan, "no folder", watch=watch)
    assert folder.read_text() == "kept"
    folder.unlink()
    folder.mkdir()
    (folder / "thesis.tex").write_text("kept")
    refused(folder, plan, "no store.json, but thesis.tex", "choose another output name", watch=watch)


@pytest.mark.parametrize("leftover", ["lock", ".rmtbase-01234567-abcdefgh.part"])
def test_store_that_was_killed_before_it_was_made_is_made_again(leftover, folder, plan):
    folder.mkdir()
    (folder / leftover).touch()
    with open_store(folder, plan) as store:
        store.record_settings(MACHINE, lambda: ["svd"])
        assert len(missing(store)[0]) == 12
    assert not list(folder.glob("*.part"))


def test_removing_leaves_what_is_not_ours(store):
    with open_store(store.folder, store.plan) as again:
        (store.folder / "notes.txt").write_text("kept")
        again.remove()
    assert [file.name for file in store.folder.iterdir()] == ["notes.txt"]
