"""Make the table of architectures that is shipped with rmtbase, and the page of the docs that lists them.

Of every model type of the installed ``transformers`` a tiny random model is run, and watched: which rows of which
tensors its queries, keys and values are, under several sets of sizes and with every flag of its configuration turned
over. What can be said in one way alone is written down, read back by the package, and proved again.

    python sims/make_architectures.py                 probe all types and write the table and the page
    python sims/make_architectures.py --only bert t5  these anew, the others as they stand
    python sims/make_architectures.py --check         prove every entry of the table
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tiny_models
import transformers
from infer_types import infer_type
from observe_attention import Refused

from rmtbase.models._layout_table import Rows

TABLE = Path(__file__).parents[1] / "src/rmtbase/models/architectures.json"
PAGE = Path(__file__).parents[1] / "docs/architectures.md"


class _Slow(BaseException):
    """A type takes too long."""


def _too_long(*_: Any) -> None:
    raise _Slow


def results(types: Iterable[str], work: Path, limit: int = 120) -> dict[str, Any]:
    """What is known of each type, from the file of earlier work, or found now and kept there."""
    held = json.loads(work.read_text()) if work.is_file() else {}
    signal.signal(signal.SIGALRM, _too_long)
    for model_type in types:
        if model_type in held:
            continue
        start = time.monotonic()
        signal.alarm(limit)
        try:
            held[model_type] = infer_type(model_type)
        except _Slow:
            held[model_type] = {"refused": f"probing it takes more than {limit} s"}
        except Exception as error:
            text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            held[model_type] = {"refused": " ".join(text.split())[:300]}
        finally:
            signal.alarm(0)
        held[model_type]["seconds"] = round(time.monotonic() - start, 1)
        work.write_text(json.dumps(held))
    return held


def table(found: Mapping[str, Any]) -> dict[str, Any]:
    """The table, of what was found: layouts that types share are written once, parts that have no entry are left out."""
    layouts: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    named: dict[str, str] = {}
    types: dict[str, Any] = {}
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
        if not types[name]["class"]:
            del types[name]["class"]
    return {"transformers": transformers.__version__, "layouts": layouts, "stacks": shared, "types": types}


def _parts(one: Mapping[str, Any], readable: set[str]) -> list[dict[str, Any]]:
    parts = [part for each in one["variants"] for part in each.get("parts", ())]
    return [
        {**part, "types": [name for name in part["types"] if name in readable]}
        for part in parts
        if part["type"] in readable
    ]


def _named(name: str, content: Mapping[str, Any], kept: dict[str, Any], named: dict[str, str]) -> str:
    """The name under which this is kept; numbered, where another has it."""
    text = json.dumps(content, sort_keys=True)
    if text not in named:
        named[text] = next(one for one in (name, *(f"{name} ({i})" for i in range(2, 999))) if one not in kept)
        kept[named[text]] = dict(content)
    return named[text]


def _class_prefix(model_type: str) -> str:
    names = tiny_models.MODEL_MAPPING_NAMES.get(model_type)
    return names.removesuffix("Model") if isinstance(names, str) and names.endswith("Model") else ""


def _defaults(model_type: str, variants: list[Mapping[str, Any]], shared: Mapping[str, Any]) -> dict[str, Any]:
    """What the class of the configuration says of the keys that the entry reads."""
    default = tiny_models.default_config(model_type)
    words: set[str] = set()
    for one in variants:
        words |= set(one.get("when", {}))
        for stack in (shared[name] for name in one.get("stacks", ())):
            words |= {word for text in stack["sizes"].values() for word in re.findall(r"[A-Za-z_]\w+", text)}
            words |= set(stack.get("attends", ()))
    return {
        key: default[key]
        for key in sorted(words)
        if default.get(key) is not None and not isinstance(default[key], (list, dict))
    }


def write_table(content: Mapping[str, Any], path: Path) -> None:
    """One line for each layout and each type."""
    lines = ["{", f'"transformers": {json.dumps(content["transformers"])},']
    for part in ("layouts", "stacks", "types"):
        rows = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in content[part].items()]
        lines += [f'"{part}": {{', ",\n".join(rows), "}" + ("," if part != "types" else "")]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")
