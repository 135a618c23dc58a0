"""Proof of an entry of the table: q·k as the package reads it from a folder is q·k as the tiny model computes it."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import fields
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from attention_trace import Attention, Refused, Trace, run
from observe_norms import inventories, tensors_of
from tiny_models import Profile, make_model, saved_classes
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from rmtbase.errors import CheckpointError
from rmtbase.models import Model, open_model
from rmtbase.models.layouts._sites import NORM_FIELDS, Place, Site

TOLERANCE = 1e-5
"""Of q·k beside its largest value: some modules compute it in float32."""


class Disproved(Exception):  # noqa: N818
    """Difference between what an entry reads and what the module computes."""


def reopened(model: torch.nn.Module) -> Model:
    """Save the model to a folder, open it as a user would, and read all of it before the folder is removed.

    Raises:
        CheckpointError: it is refused.
        Disproved: its notes contradict what is read, or a matrix that is read is none of the module's.
    """
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        opened = open_model(folder)
        values = {name: opened.stored(name) for site in opened.sites for name in site.query_key_tensors()}
        wrong = contradictions(opened)
    if wrong:
        raise Disproved("; ".join(wrong))
    disk = revert_weight_conversion(model, dict(model.state_dict()))
    for name, value in values.items():
        if name not in disk or not np.array_equal(value, disk[name].float().numpy()):
            raise Disproved(f"{name} is not what the module has")
    return opened


def contradictions(opened: Model) -> list[str]:
    """List contradictions between the notes of a model and what is read from it."""
    notes = (*opened.notes, *opened.part_notes("layers"))
    left = [note.removeprefix("not read: ").partition(":")[0] for note in opened.notes if note.startswith("not read: ")]
    used = {name for site in opened.sites for name in site.query_key_tensors()}
    found = [
        f"{name} is read, and {module} is said not to be"
        for module in left
        for name in sorted(used)
        if name.startswith(f"{module}.")
    ]
    found += [f"{name} is read, and said not to be" for name in sorted(used) for note in notes if f"'{name}'" in note]
    found += [note for note in notes if note.startswith("biases that")]  # its own class has saved it
    elsewhere = [
        name for note in notes if note.startswith("not scored, because") for name in re.findall("'(.+?)'", note)
    ]
    return found + [f"{name} is of attention, and said not to be" for name in elsewhere if _ATTENTION.search(name)]


_ATTENTION = re.compile(r"att(n|ention)|\.(q|k|v|query|key|value)_?(proj)?\.weight")


def prove_type(model_type: str, profile: Profile, **options: Any) -> dict[str, float]:
    """Prove a type's class with a head as :func:`prove` does, and only the sites of the class without a head.

    The class without a head is proved where there is no other. A class that lacks a stack of the type, such as the
    classifier of images of a type with texts, may be read by the torch route, which proves it.

    Raises:
        Disproved: both were saved, and one is read otherwise than the other, or not by the table.
    """
    classes = saved_classes(model_type) or [None]
    base = make_model(model_type, profile, of=classes[0], **options)
    for of in classes[1:]:
        try:
            headed = make_model(model_type, profile, of=of, **options)
        except Exception:
            continue  # it cannot be built with these sizes
        plain, whole = reopened(base), reopened(headed)
        if plain._network is not None:
            raise Disproved("the table does not read its folder, but the torch route does")
        places = [
            [(site.place, site.query_key_tensors()[0].rpartition(".")[2]) for site in one.sites]
            for one in (plain, whole)
        ]
        stacks = [{site.place.stack for site in one.sites} for one in (plain, whole)]
        if whole._network is not None and stacks[0] - stacks[1]:
            return prove(base, plain)
        if whole._network is not None or places[0] != places[1]:
            raise Disproved(f"{of.__name__} has other sites in its folder than {type(base).__name__}")
        try:
            return prove(headed, whole)
        except Refused:  # what its head reads shows less
            return prove(base, plain)
    return prove(base)


def prove(model: torch.nn.Module, opened: Model | None = None) -> dict[str, float]:
    """Return the largest relative difference between q·k of the module and xᵀ W_QK x′, by stack.

    The sites are those of its folder, saved and opened; each of its tensors is, to the bit, what the module has.

    Raises:
        Disproved: q·k differs, or a softmax is of no site and no note says so.
        Refused: the model was not run, or a site of the table was not seen.
        CheckpointError: the table refuses the model.
    """
    opened = opened or reopened(model)
    if opened._network is not None:
        raise Disproved("the table does not read its folder, but the torch route does")
    stored = model.state_dict()
    disk = revert_weight_conversion(model, dict(stored))
    at = {tensor.untyped_storage().data_ptr(): name for name, tensor in disk.items()}
    on_disk = {name: at.get(tensor.untyped_storage().data_ptr(), "") for name, tensor in stored.items()}
    tensors = {name: tensor for name, tensor in disk.items() if tensor.is_floating_point()}
    sites = {(site.place, site.module): site for site in opened.sites}
    left = set(sites)
    worst: dict[str, float] = {}
    for prefix, trace in runs(model):
        for seen in trace.attentions:
            site = _site_of(seen, trace, sites, prefix, on_disk)
            if site is None:
                if not any(
                    note.startswith(("attention that is not read", "beside the heads")) for note in opened.notes
                ):
                    raise Disproved(f"{prefix}{seen.module} is of no site")
                continue
            error = difference(site, seen, trace, prefix, on_disk, tensors)
            worst[site.place.stack] = max(worst.get(site.place.stack, 0.0), error)
            left.discard((site.place, site.module))
    if left:
        raise Refused(f"{min(left)[1]} was not seen to attend")
    return worst


def prove_scales(model: torch.nn.Module) -> None:
    """Compare the table's scales of the logits with those of the forward pass.

    Raises:
        Disproved: one is another.
    """
    read, shown = inventories(model)
    by_tensors = {tensors_of(site): site.logit_scale for site in shown.sites}
    for site in read.sites:
        seen = by_tensors.get(tensors_of(site))
        if None not in (site.logit_scale, seen) and abs(site.logit_scale - seen) > TOLERANCE * seen:
            raise Disproved(f"{site.module}: logits are {seen} times q·k, not {site.logit_scale}")


class UnsavedError(Exception):
    """A model that transformers cannot save."""


def either_way(model: torch.nn.Module) -> list[str]:
    """List what is read of the model itself otherwise than of its folder: sites, their sizes, names and bits.

    Where one is refused, so must be the other, by the same kind of error and for the same reason.

    Raises:
        UnsavedError: transformers itself cannot write the folder.
    """
    with TemporaryDirectory() as folder:
        try:
            model.save_pretrained(folder)
        except Exception as error:
            raise UnsavedError from error
        from_folder, from_memory = _content(folder), _content(model)
    if isinstance(from_folder, str) or isinstance(from_memory, str) or [*from_folder] != [*from_memory]:
        same = from_folder == from_memory
        return [] if same else [f"folder: {_shown(from_folder)}; memory: {_shown(from_memory)}"]
    return [
        f"{place}: {name} of the folder is {value}, of the memory {from_memory[place][name]}"
        for place, content in from_folder.items()
        for name, value in content.items()
        if value != from_memory[place][name]
    ]


def _content(given: str | torch.nn.Module) -> dict[str, dict[str, Any]] | str:
    """Describe each site as it is read, by its place, or the refusal."""
    try:
        opened = open_model(given)
    except CheckpointError as error:
        return f"{type(error).__name__}{str(error).removeprefix(str(error.path))}"
    return {str(site.place): _of_site(site, opened) for site in opened.sites}


def _of_site(site: Site, opened: Model) -> dict[str, Any]:
    content = {field.name: getattr(site, field.name) for field in fields(Site)}
    for name, matrix in site.expressions().items():
        values = np.ascontiguousarray(matrix.evaluate(opened.stored), np.float32)
        content[f"{name}, its bits"] = values.shape, hashlib.sha256(values.tobytes()).hexdigest()[:8]
    return content


def _shown(content: dict[str, Any] | str) -> str:
    return content if isinstance(content, str) else ", ".join(content) or "no sites"


def prove_norms(model: torch.nn.Module) -> int:
    """Count the norms that the table knows, all of which must equal those of the forward pass, as must the rotations.

    Raises:
        Disproved: one is another, or none, or a layer is rotated otherwise.
    """
    read, shown = inventories(model)
    by_tensors = {tensors_of(site): site for site in shown.sites}
    known = 0
    for site in read.sites:
        other = by_tensors.get(tensors_of(site))
        for field in NORM_FIELDS:
            said, seen = getattr(site, field), getattr(other, field, None)
            if said is not None and said != seen:
                raise Disproved(f"{site.module}: {field} is {seen}, not {said}")
            known += said is not None
        if site.rotated is not None and other is not None and other.rotated not in (None, site.rotated):
            raise Disproved(f"{site.module}: {other.rotated} dimensions are rotated, not {site.rotated}")
    return known


def runs(model: torch.nn.Module) -> Iterator[tuple[str, Trace]]:
    """Trace the forward pass of the model or, if the model cannot be run as a whole, of each of its parts."""
    parts = []
    for name, one in model.named_modules():
        inner = name and isinstance(one, PreTrainedModel) and one.config is not model.config
        if inner and not any(name.startswith(part + ".") for part in parts):
            parts.append(name)
    try:
        yield "", run(model)[0]
    except Refused:
        if not parts:
            raise
    for part in parts:
        try:
            yield part + ".", run(model.get_submodule(part))[0]
        except Refused:
            continue


def _site_of(
    seen: Attention, trace: Trace, sites: dict[tuple[Place, str], Site], prefix: str, on_disk: dict[str, str]
) -> Site | None:
    module = seen.module.removesuffix(".softmax")
    mine = {
        on_disk.get(prefix + one.tensor, "")
        for one in trace.linears
        if one.module.startswith(module) or one.tensor.startswith(module + ".")
    }
    for site in sites.values():
        if site.query is not None and set(site.query.tensors()) <= mine:
            return site
    return None


def difference(
    site: Site, seen: Attention, trace: Trace, prefix: str, on_disk: dict[str, str], tensors: dict[str, torch.Tensor]
) -> float:
    """Largest deviation of xᵀ W_QK x′ from the module's q·k over all heads and positions, over the largest |q·k|."""
    assert site.query is not None and site.key is not None
    read = {name: tensor.double().numpy() for name, tensor in tensors.items()}

    def heads(expression: Any, n_heads: int) -> list[np.ndarray]:
        """Heads computed from each use of the tensors; a layer may be run several times."""
        first = list(expression.tensors())[-1]
        matrix = expression.evaluate(read.__getitem__).astype(np.float64)
        uses = [one.x for one in trace.linears if on_disk.get(prefix + one.tensor) == first]
        return [(x @ matrix.T).reshape(len(x), n_heads, -1).transpose(1, 0, 2) for x in uses]

    group = len(seen.query) // len(seen.key)
    shown = seen.query @ np.repeat(seen.key, group, axis=0).swapaxes(1, 2)
    best = (np.inf, 0.0)
    for query, key in zip(heads(site.query, site.n_heads), heads(site.key, site.n_key_heads), strict=True):
        computed = query @ np.repeat(key, site.n_heads // site.n_key_heads, axis=0).swapaxes(1, 2)
        if computed.shape == shown.shape:
            factor = float((computed * shown).sum() / (computed * computed).sum())
            best = min(best, (float(np.abs(shown - factor * computed).max() / np.abs(shown).max()), factor))
    error, factor = best
    if error > TOLERANCE:
        raise Disproved(f"{site.module}: q·k differs by {error:.1e} of its largest value")
    if site.logit_scale is not None and seen.scale is not None:
        far = abs(factor * seen.scale - site.logit_scale) > TOLERANCE * abs(site.logit_scale)
        if far:
            raise Disproved(f"{site.module}: logits are {factor * seen.scale} times q·k, not {site.logit_scale}")
    return error
