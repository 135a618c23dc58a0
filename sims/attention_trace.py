"""Find the stored rows that are the queries, keys and values of a running model, by watching its forward pass.

Every product of a tensor with a weight and every softmax of a product of two tensors is recorded. Over the positions
of the input, a dimension of a head's query is a vector of numbers, and so is each output of each weight. With random
inputs no two of these vectors are alike, so equal vectors come from the same row. Meanwhile rotations are by angle
zero, and norms inside the attention do nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tiny_models
import torch
from torch.overrides import TorchFunctionMode

_PRODUCTS = {"matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mm", "__rmatmul__"}
_SAME = 1e-9


@dataclass(frozen=True)
class Linear:
    """Use of a weight: ``y = x W^T`` or ``y = x W``, positions first."""

    tensor: str
    module: str
    x: np.ndarray
    y: np.ndarray
    transposed: bool


@dataclass
class Attention:
    """Softmax of a product: (head, position, dimension) of its queries and keys, and of its values and their output."""

    module: str
    query: np.ndarray
    key: np.ndarray
    logits: np.ndarray
    scale: float | None = None
    value: np.ndarray | None = None
    context: np.ndarray | None = None


@dataclass
class Trace(TorchFunctionMode):
    """Records of one forward pass of a model. ``rotate`` leaves rotations as they are."""

    names: dict[int, str]
    rotate: bool = False
    linears: list[Linear] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)
    path: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        super().__init__()
        self._products: dict[int, tuple[Any, Any, Any]] = {}
        self._weights: dict[int, Attention] = {}
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not self.rotate:
            if name in ("cos", "sin") and isinstance(args[0], torch.Tensor):
                return torch.ones_like(args[0]) if name == "cos" else torch.zeros_like(args[0])
            if name == "polar":
                return func(args[0], torch.zeros_like(args[1]))
        out = func(*args, **kwargs)
        if not isinstance(out, torch.Tensor) or not out.is_floating_point():
            return out
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        for one in args:
            if isinstance(one, (list, tuple)):
                tensors += [part for part in one if isinstance(part, torch.Tensor)]
        if name in ("linear", "addmm", "conv1d", "conv2d", "conv3d") or name in _PRODUCTS:
            weights = [one for one in tensors if one.ndim >= 2 and self._stored(one)]
            if weights:
                self._linear(name, weights[-1], [one for one in tensors if one is not weights[-1]], out, args)
            elif name in _PRODUCTS and len(tensors) >= 2:
                self._product(name, args, tensors[-2], tensors[-1], out)
        elif name == "softmax":
            self._softmax(tensors[0], out)
        elif name == "scaled_dot_product_attention":
            query, key, value = (
                kwargs.get(one, args[i] if i < len(args) else None) for i, one in enumerate(("query", "key", "value"))
            )
            scale = kwargs.get("scale") or query.shape[-1] ** -0.5
            self._attend(query, key.mT, torch.zeros(1), scale)
            self.attentions[-1].value, self.attentions[-1].context = _heads(value), _heads(out)
        else:
            for one in tensors:
                for held in (self._products, self._weights):
                    if id(one) in held and out.numel() >= one.numel() // 2 and out.ndim >= 3:
                        held.setdefault(id(out), held[id(one)])
                        self._kept.append(out)
        return out

    def _stored(self, tensor: torch.Tensor) -> str | None:
        return self.names.get(tensor.untyped_storage().data_ptr())

    def _linear(self, name: str, weight: torch.Tensor, rest: list[torch.Tensor], out: torch.Tensor, args: Any) -> None:
        x = [one for one in rest if one.ndim >= 2 and not self._stored(one)]
        if not x:
            return
        given = x[0]
        if name.startswith("conv"):
            if any(size != 1 for size in weight.shape[2:]) or weight.shape[1] != given.shape[1]:  # grouped
                return
            given, out = given.movedim(1, -1), out.movedim(1, -1)
        if name == "einsum":
            return
        xs, ys = _rows(given), _rows(out)
        if len(xs) != len(ys):
            return
        whole = weight.detach().numpy()
        transposed = name not in ("linear",) and not name.startswith("conv")
        if transposed and whole.strides[0] < whole.strides[-1]:  # W.t() of a stored W
            transposed = False
        self.linears.append(Linear(self._stored(weight) or "", self.path[-1], xs, ys, transposed))

    def _product(self, name: str, args: Any, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        if name == "einsum":
            spec, left, right = _as_matmul(args, left, right)
            if spec is None:
                return
        held = self._weights.get(id(left)) if name != "einsum" else self._weights.get(id(args[1]))
        if held is not None and held.value is None:
            held.value, held.context = _heads(right), _heads(out)
            return
        if out.ndim >= 3:
            self._products[id(out)] = (left, right, out.clone())
            self._kept.append(out)

    def _softmax(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        found = self._products.get(id(logits))
        if found is None:
            return
        left, right, product = found
        finite = (logits > -1e4) & (product.abs() > 1e-6) if logits.shape == product.shape else None
        ratio = (logits[finite] / product[finite]).detach().numpy() if finite is not None else np.zeros(0)
        scale = float(np.median(ratio)) if ratio.size and np.ptp(ratio) < 1e-6 * abs(np.median(ratio)) else None
        self._attend(left, right, product, scale)
        self._weights[id(out)] = self.attentions[-1]
        self._kept.append(out)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, product: torch.Tensor, scale: float | None) -> None:
        one = Attention(self.path[-1], _heads(query), _heads(key.mT), product.detach().numpy(), scale)
        self.attentions.append(one)


def _heads(tensor: torch.Tensor) -> np.ndarray:
    """Convert queries, keys or values of one batch to (head, position, dimension)."""
    array = tensor.detach().double().numpy()
    if array.ndim == 2:
        return array[None]
    return array.reshape(-1, *array.shape[-2:]).copy()


def _rows(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().reshape(-1, tensor.shape[-1]).double().numpy().copy()


def _as_matmul(args: Any, left: torch.Tensor, right: torch.Tensor) -> tuple[Any, Any, Any]:
    if not isinstance(args[0], str) or "->" not in args[0] or "." in args[0]:
        return None, left, right
    first, second = (args[1:] if not isinstance(args[1], (list, tuple)) else args[1])[:2]
    (one, other), out = args[0].replace(" ", "").split("->")[0].split(","), args[0].replace(" ", "").split("->")[1]
    shared = [letter for letter in one if letter in other]
    summed, batch = [x for x in shared if x not in out], [x for x in shared if x in out]
    mine, others = [x for x in one if x not in shared], [x for x in other if x not in shared]
    if len(summed) != 1 or len(mine) != 1 or len(others) != 1:
        return None, left, right
    a = first.permute([one.index(x) for x in (*batch, *mine, *summed)])
    b = second.permute([other.index(x) for x in (*batch, *summed, *others)])
    return True, a, b


@contextmanager
def watching(model: torch.nn.Module, rotate: bool = False, still: Iterable[str] = ()) -> Iterator[Trace]:
    """Record what the model does; norms inside the modules ``still`` do nothing."""
    names = {one.untyped_storage().data_ptr(): name for name, one in model.named_parameters()}
    trace = Trace(names, rotate)
    still = tuple(still)
    with ExitStack() as stack:
        for name, module in model.named_modules():

            def enter(_m: Any, _a: Any, name: str = name) -> None:
                trace.path.append(name)

            def leave(_m: Any, given: Any, out: Any, quiet: bool = False) -> Any:
                trace.path.pop()
                return given[0] if quiet and given and isinstance(given[0], torch.Tensor) else out

            quiet = "norm" in type(module).__name__.lower() and any(name.startswith(one + ".") for one in still)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            hook = (lambda m, a, o, leave=leave: leave(m, a, o, True)) if quiet else leave
            stack.callback(module.register_forward_hook(hook).remove)
        stack.enter_context(torch.no_grad())
        tables = [*model.named_buffers(), *model.named_parameters()]
        for name, table in () if rotate else tables:
            if re.search(r"embed_positions(\.weight)?$", name) and not table.requires_grad:  # sines, then cosines
                stack.callback(table.copy_, table.clone())
                table[:, : table.shape[-1] // 2], table[:, table.shape[-1] // 2 :] = 0, 1
        stack.enter_context(trace)
        yield trace


@dataclass(frozen=True)
class Source:
    """Source of each dimension of each head: (head, dimension) -> a use of a weight, its row, and a factor."""

    linear: np.ndarray
    row: np.ndarray
    factor: np.ndarray


def sources(parts: np.ndarray, linears: list[Linear]) -> Source | None:
    """Find the rows of weights that give ``parts`` (head, position, dimension); None if any is unknown."""
    heads, positions, size = parts.shape
    wanted = parts.transpose(0, 2, 1).reshape(heads * size, positions)
    norm = np.linalg.norm(wanted, axis=1)
    if not (norm > 0).all():
        return None
    linear = np.full(heads * size, -1)
    row, factor = np.zeros(heads * size, int), np.zeros(heads * size)
    for i, one in enumerate(linears):
        if len(one.y) != positions:
            continue
        outputs = one.y.T
        lengths = np.linalg.norm(outputs, axis=1)
        lengths[lengths == 0] = np.inf
        cosine = (wanted / norm[:, None]) @ (outputs / lengths[:, None]).T
        best = np.abs(cosine).argmax(1)
        hit = (np.abs(cosine[np.arange(len(best)), best]) > 1 - _SAME) & (linear < 0)
        linear[hit], row[hit] = i, best[hit]
        factor[hit] = (norm / lengths[best] * np.sign(cosine[np.arange(len(best)), best]))[hit]
    if (linear < 0).any():
        return None
    return Source(*(one.reshape(heads, size) for one in (linear, row, factor)))


class Refused(Exception):  # noqa: N818
    """Reason why the table cannot describe a type, or a variant of it."""


def run(model: torch.nn.Module) -> tuple[Trace, Trace]:
    """Trace a forward pass of the model twice: with rotations by angle zero, and with its own rotations."""

    def watched(given: Mapping[str, Any], **options: Any) -> Trace:
        torch.manual_seed(3)  # of models that mask or choose patches at random
        with watching(model, **options) as trace:
            model(**given)
        return trace

    failures = []
    for given in tiny_models.inputs(model):
        try:
            first = watched(given)
            if not first.attentions:
                failures.append("no attention")
                continue
            still = {one.module for one in first.attentions}
            return watched(given, still=still), watched(given, still=still, rotate=True)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {str(error)[:100]}")
    raise Refused("its forward pass was not run: " + "; ".join(dict.fromkeys(failures)))
