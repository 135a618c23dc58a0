"""Make the table of architectures that is shipped with rmtbase, and the page of the docs that lists them.

A tiny random model of every model type of the installed ``transformers`` is run and watched: which rows of which
tensors are its queries, keys and values, under several sets of sizes and with every flag of its configuration turned
over. A layout with only one possible description is written down, read back by the package, and proved again.

    python sims/make_architectures.py                 probe all types and write the table and the page
    python sims/make_architectures.py --only bert t5  these anew, the others as they stand in the table
    python sims/make_architectures.py --check         prove every entry of the table; with --norms the norms in it, with
                                                      --scales its scales, with --either that the folder and the memory
                                                      of every type give the same
"""

import argparse
import json
import os
import re
import resource
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import tiny_models
import torch
import transformers
from architectures_page import EARLIER, TORCH, page
from attention_trace import Refused
from infer_types import infer_type
from observe_biases import biases_of, with_biases
from observe_norms import norms_of, with_norms
from prove_architectures import (
    Disproved,
    UnsavedError,
    contradictions,
    either_way,
    prove_norms,
    prove_scales,
    prove_type,
)
from tiny_models import PROFILES, key_head_options, make_model, model_classes, saved_classes
from work_files import kept

from rmtbase.models import open_model
from rmtbase.models.layouts import _layout_table
from rmtbase.models.layouts._layout_table import Rows

TABLE = Path(__file__).parents[1] / "src/rmtbase/models/architectures.json"
PAGE = Path(__file__).parents[1] / "docs/architectures.md"


_MOST_MEMORY = 10 << 30  # bytes of address space, beyond which a type is given up


def results(types: Iterable[str], work: Path, limit: int = 120) -> dict[str, Any]:
    """Infer the entry of each type, or record why that failed."""

    def find(model_type: str) -> dict[str, Any]:
        try:
            return infer_type(model_type)
        except Exception as error:
            text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            return {"refused": " ".join(text.split())[:300]}

    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, before[1]))
    try:
        return kept(types, work, limit, find, {"refused": f"probing it takes more than {limit} s"})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def table(found: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Build the table from the findings: what types share is written once, and parts without an entry are left out.

    Types that were not looked at are as they were ``before``.
    """
    earlier = before or {"layouts": {}, "stacks": {}, "norms": {}, "types": {}}
    layouts, shared = dict(earlier["layouts"]), dict(earlier["stacks"])
    named = {json.dumps(one, sort_keys=True): name for each in (layouts, shared) for name, one in each.items()}
    types: dict[str, Any] = {name: deepcopy(one) for name, one in earlier["types"].items() if name not in found}
    plain = {name: one for name, one in found.items() if "variants" in one}
    for name in sorted(plain):
        variants = []
        for one in plain[name]["variants"]:
            variant = {"when": one["when"]} if one.get("when") else {}
            stacks = []
            for stack in one["stacks"]:
                query = next(
                    name for name, rows in stack["layout"]["tensors"].items() if "q" in Rows.parse(rows).blocks
                )
                name_of = stack["layout"]["layer"] + query.removesuffix(".weight")
                content = {key: value for key, value in stack["layout"].items() if value}
                layout = _named(name_of, content, layouts, named)
                stacks.append(_named(f"{stack['stack']} {layout}".lstrip(), {**stack, "layout": layout}, shared, named))
            variants.append(
                variant | ({"stacks": stacks} if stacks else {}) | {k: one[k] for k in ("parts", "unread") if k in one}
            )
        types[name] = {"class": _class_prefix(name), "variants": variants}
        types[name]["defaults"] = _defaults(name, variants, shared)
    types = dict(sorted(types.items()))
    readable = {name for name, one in types.items() if any("stacks" in each for each in one["variants"])}
    while True:  # parts of parts
        kept = {name for name, one in types.items() if name in readable or _parts(one, readable)}
        if kept == readable:
            break
        readable = kept
    for name in [*types]:
        if name not in readable:
            del types[name]
            continue
        for one in types[name]["variants"]:
            if "parts" in one:
                held = _parts({"variants": [one]}, readable)
                gone = [
                    part["config"] for part in one["parts"] if part["config"] not in [each["config"] for each in held]
                ]
                one["parts"] = held
                if gone or one.get("unread"):
                    one["unread"] = sorted({*one.get("unread", ()), *gone})
        if not types[name].get("class"):
            types[name].pop("class", None)
    used = {name for one in types.values() for each in one["variants"] for name in each.get("stacks", ())}
    shared = {name: one for name, one in shared.items() if name in used}
    laid_out = {one["layout"] for one in shared.values()}
    return {
        "transformers": transformers.__version__,
        "layouts": {name: one for name, one in layouts.items() if name in laid_out},
        "stacks": shared,
        "norms": dict(earlier["norms"]),
        "types": types,
    }


def _parts(one: Mapping[str, Any], readable: set[str]) -> list[dict[str, Any]]:
    parts = [part for each in one["variants"] for part in each.get("parts", ())]
    return [
        {**part, "types": [name for name in part["types"] if name in readable]}
        for part in parts
        if part["type"] in readable
    ]


def _named(name: str, content: Mapping[str, Any], kept: dict[str, Any], named: dict[str, str]) -> str:
    """Store a content once and return its name, numbered if another content has that name."""
    text = json.dumps(content, sort_keys=True)
    if text not in named:
        named[text] = next(one for one in (name, *(f"{name} ({i})" for i in range(2, 999))) if one not in kept)
        kept[named[text]] = dict(content)
    return named[text]


def _class_prefix(model_type: str) -> str:
    names = tiny_models.MODEL_MAPPING_NAMES.get(model_type)
    return names.removesuffix("Model") if isinstance(names, str) and names.endswith("Model") else ""


def _defaults(model_type: str, variants: list[Mapping[str, Any]], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that the configuration class has for the keys that the entry reads."""
    cls = tiny_models.config_class(model_type)
    computed = tiny_models.default_config(model_type)
    default = {key: getattr(cls, key, None) for key in computed}  # None where it follows from others
    words: set[str] = set()
    for one in variants:
        words |= set(one.get("when", {}))
        for stack in (shared[name] for name in one.get("stacks", ())):
            words |= {word for text in stack["sizes"].values() for word in re.findall(r"[A-Za-z_]\w+", text)}
            words |= {*stack.get("attends", ()), *stack.get("rotates", ()), *stack.get("scale_if", ())}
            words |= set(re.findall(r"[A-Za-z_]\w+", stack.get("scale") or ""))
    return {key: default[key] for key in sorted(words) if isinstance(default.get(key), (bool, int, float, str, tuple))}


def read_table() -> dict[str, Any]:
    """Read the shipped table."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def write_table(content: Mapping[str, Any], path: Path) -> None:
    """Write the table, with one line for each layout and each type."""
    lines = ["{", f'"transformers": {json.dumps(content["transformers"])},']
    for part in ("layouts", "stacks", "norms", "types"):
        rows = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in content[part].items()]
        lines += [f'"{part}": {{', ",\n".join(rows), "}" + ("," if part != "types" else "")]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")
    for held in (_layout_table._table, _layout_table._with_sizes_alone, _layout_table._layout):
        held.cache_clear()  # of the table that was there before


def torch_route(model_type: str) -> str:
    """Describe how the torch route reads a tiny model from a folder: what is proved, or why it is refused."""
    os.environ["RMTBASE_PROOF"] = "1"
    first: Exception | None = None
    try:
        options = tiny_models.key_head_options(model_type, PROFILES[0])
    except Exception as error:  # of a type whose own defaults it refuses
        return f"refused: its default configuration cannot be built ({type(error).__name__}: {error})"
    for of in saved_classes(model_type)[::-1] or [None]:  # the one with a head, if it can be built
        for more in options:
            try:
                model = tiny_models.make_model(model_type, of=of, **more)
            except Exception as error:
                first = error
                continue
            return _route_of(model)
    return f"refused: no tiny model of it can be built ({type(first).__name__}: {first})"


def _route_of(model: torch.nn.Module) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save_pretrained(folder)
            opened = open_model(folder).prove()
        except Exception as error:
            return f"refused: {str(error).replace(folder, '')}"
        wrong = contradictions(opened)
    (*_, proof) = opened.notes
    if wrong or not proof.startswith("proved against"):
        return f"refused: {'; '.join(wrong) or proof}"
    words = ("not read", "read in part")
    left = [note.partition(": ")[2].partition(":")[0] for note in opened.notes if note.startswith(words)]
    unread = [note for note in opened.notes if note.startswith("attention that is not read")]
    left = left or [name for note in unread for name in re.findall(r"'(.+?)'", note)]
    return TORCH + (f"; not read: {', '.join(left[:2])}{', …' if len(left) > 2 else ''}" if left else "")


def routes(types: Iterable[str], work: Path, limit: int = 60) -> dict[str, str]:
    """Describe how each type that the table lacks is read."""
    return kept(types, work, limit, torch_route, f"refused: running it takes more than {limit} s")


def norms(content: dict[str, Any], work: Path, only: Collection[str] = (), limit: int = 60) -> dict[str, Any]:
    """Add the norms of its types to the table; types that were not looked at keep theirs."""
    before = {} if not only else {name: _norms_held(content, one) for name, one in content["types"].items()}
    types = [name for name in content["types"] if not only or name in only]
    return with_norms(content, before | kept(types, work, limit, partial(norms_of, content), []))


def biases(content: dict[str, Any], work: Path, only: Collection[str] = (), limit: int = 60) -> dict[str, Any]:
    """Add to the table which maps have a bias, or the configuration key that decides it."""
    types = [name for name in content["types"] if not only or name in only]
    return with_biases(content, kept(types, work, limit, partial(biases_of, content), []))


def _norms_held(content: Mapping[str, Any], one: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """Norms of each variant of a type as the table has them, in the form in which they were found."""
    return [
        {
            "stacks": [content["norms"][name] for name in variant["norms"]["of"]],
            "when": variant["norms"].get("when", {}),
            "unrotated": variant.get("unrotated", {}),
        }
        if "norms" in variant
        else None
        for variant in one["variants"]
    ]


def prove_all_norms(content: Mapping[str, Any], stride: slice = slice(None)) -> dict[str, str]:
    """List the types whose norms in the table do not hold for a model of other sizes, and why."""
    failures = {}
    for model_type in list(content["types"])[stride]:
        for variant in content["types"][model_type]["variants"]:
            if "norms" not in variant:
                continue
            said = {key: value for key, value in variant.get("when", {}).items() if value != "any"}
            try:
                prove_norms(tiny_models.make_model(model_type, PROFILES[2], **said))
            except Disproved as error:
                failures[model_type] = str(error)
            except Exception:
                continue  # no model of these sizes can be built, or be run
    return failures


def differences(model_type: str) -> str:
    """Describe what the memory and the folder of a type's classes give differently; empty if they give the same."""
    found = []
    for of in model_classes(model_type)[:2]:
        for more in key_head_options(model_type, PROFILES[0]):
            try:
                model = make_model(model_type, PROFILES[0], of=of, **more)
            except Exception:
                continue  # it cannot be built with these sizes
            with suppress(UnsavedError):
                found += [f"{of.__name__}: {difference}" for difference in either_way(model)]
                break
    return "; ".join(found)


def wrong_scales(model_type: str) -> str:
    """Describe the scales in the table that do not hold for a type; empty if they hold, or if it cannot be run."""
    try:
        prove_scales(make_model(model_type, PROFILES[0]))
    except Disproved as error:
        return str(error)
    except Exception:
        return ""
    return ""


def prove_all(content: Mapping[str, Any], stride: slice = slice(None)) -> dict[str, str]:
    """List the types that the table reads wrongly or not at all: type -> what is wrong."""
    found = {name: failure(content, name) for name in list(content["types"])[stride]}
    return {name: reason for name, reason in found.items() if reason}


def failure(content: Mapping[str, Any], model_type: str) -> str:
    """Describe what the table reads wrongly, or not at all, of a type; empty if each of its variants is proved."""
    failed = ""
    for variant in content["types"][model_type]["variants"]:
        said = {key: value for key, value in variant.get("when", {}).items() if value != "any"}
        error: str | None = None
        for more in tiny_models.key_head_options(model_type, PROFILES[1]):
            try:
                prove_type(model_type, PROFILES[1], **{**more, **said})
                error = None
                break
            except Exception as caught:
                error = error or f"{type(caught).__name__}: {caught}"
        if error:
            failed = f"{said or ''} {' '.join(error.split())[:300]}".strip()
    return failed


def make_page(work: Path, stride: slice, proved: Collection[str]) -> None:
    """Write the page; types that were not run now are as the page has them, with the version that found them."""
    content = read_table()
    others = [name for name in tiny_models.all_types() if name not in content["types"]]
    held = routes(others[stride], work)
    before = PAGE.read_text(encoding="utf-8")
    version = re.search(r"`transformers` ([\d.]+)", before)
    assert version is not None
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", before, re.MULTILINE))
    for name in others:
        if name not in held and name in rows and not rows[name].startswith("the table"):
            held[name] = rows[name] if EARLIER.search(rows[name]) else f"{rows[name]} (transformers {version[1]})"
    found = {name: held.get(name, "refused: not tried yet") for name in others}
    PAGE.write_text(page(content, found, proved), encoding="utf-8")


def main() -> None:
    """Parse the command line; make the table and the page, or prove them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("atlas-work/architectures.json"), help="what was found")
    parser.add_argument("--only", nargs="+", default=(), help="types to probe anew")
    parser.add_argument("--part", type=int, nargs=2, metavar=("I", "N"), default=(0, 1), help="every N-th type from I")
    parser.add_argument("--check", action="store_true", help="prove every entry of the table, and make nothing")
    parser.add_argument(
        "--keep", action="store_true", help="with --check: go on from --work, and keep what is found there"
    )
    parser.add_argument("--norms", action="store_true", help="with --check: its norms instead")
    parser.add_argument("--scales", action="store_true", help="with --check: its scales instead")
    parser.add_argument("--either", action="store_true", help="with --check: folder and memory of all types instead")
    parser.add_argument("--page", action="store_true", help="make the page alone, of the table as it is")
    options = parser.parse_args()
    stride = slice(options.part[0], None, options.part[1])
    if options.check:
        content = read_table()
        each = {"either": (tiny_models.all_types(), differences), "scales": ([*content["types"]], wrong_scales)}
        chosen = next((name for name in each if getattr(options, name)), None)
        if options.keep or chosen:
            known, find = each[chosen] if chosen else ([*content["types"]], partial(failure, content))
            types = known[stride]
            checked = options.work.with_suffix(f".{chosen or 'checked'}.json")
            held = kept(types, checked, 120, find, "it takes more than 120 s")
            failures = {name: held[name] for name in types if held[name]}
        else:
            failures = (prove_all_norms if options.norms else prove_all)(content, stride)
        raise SystemExit("\n".join(f"{name}: {reason}" for name, reason in failures.items()) or None)
    checked = options.work.with_suffix(".checked.json")
    if options.page:
        held = json.loads(checked.read_text()) if checked.is_file() else {}
        make_page(options.work, stride, [name for name, reason in held.items() if not reason])
        return
    beside = options.work.with_suffix(".norms.json")
    for work in (options.work, beside) if options.only else ():
        if work.is_file():
            held = json.loads(work.read_text())
            work.write_text(json.dumps({name: one for name, one in held.items() if name not in options.only}))
    before = read_table() if options.only else None
    found = results(options.only or tiny_models.all_types()[stride], options.work)
    found = {name: one for name, one in found.items() if not options.only or name in options.only}
    write_table(table(found, before), TABLE)
    while failures := prove_all(read_table()):  # without one type, those that it is a part of may be others
        found |= {name: {"refused": reason} for name, reason in failures.items()}
        write_table(table(found, before), TABLE)
    write_table(norms(read_table(), beside, options.only), TABLE)
    for model_type in prove_all_norms(read_table()):
        beside.write_text(json.dumps(json.loads(beside.read_text()) | {model_type: []}))
    write_table(norms(read_table(), beside, options.only), TABLE)
    write_table(biases(read_table(), options.work.with_suffix(".biases.json"), options.only), TABLE)
    make_page(options.work.with_suffix(".routes.json"), slice(None), read_table()["types"])
    print(f"{len(read_table()['types'])} types by the table, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
