"""Weights of other programs: the error names the program, and its lines of Python, run as printed, read them rightly.

Each example is a module with the arithmetic of its program and the names of its state dict. The lines are taken from
the error and executed; the scores q·k of every head must be those of the module. What is only known to the user (the
number of heads) is put in where the lines leave a blank.
"""

import argparse
import json
import pickle
import struct

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, RmtbaseError, ShapeError
from rmtbase.models import open_model

HEADS, KEY_HEADS, D_HEAD, D_MODEL, LAYERS, TOKENS = 6, 2, 5, 24, 3, 4
WIDTH, KEY_WIDTH = HEADS * D_HEAD, KEY_HEADS * D_HEAD


def linear(outputs, inputs):
    return nn.Linear(inputs, outputs)


def heads(x, n):
    """(token, n · d_head) as (n, token, d_head)."""
    return x.unflatten(-1, (n, -1)).movedim(-2, 0)


def scores(q, k):
    """q·k of each query head with the key head of its group."""
    return q @ k.repeat_interleave(len(q) // len(k), 0).mT


def unbiased(module):
    """No biases: W_QK is the whole of q·k."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return module


# The programs, as far as their queries and keys.


class NanoAttention(nn.Module):
    """nanoGPT: one Linear, queries, keys and values one after the other."""

    n_heads = 4

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = linear(3 * D_MODEL, D_MODEL), linear(D_MODEL, D_MODEL)

    def scores(self, x):
        q, k, _ = self.c_attn(x).split(D_MODEL, dim=-1)
        return scores(heads(q, 4), heads(k, 4))


class LitAttention(nn.Module):
    """litgpt from 0.5 on: queries, keys, values, of fewer key heads."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = linear(WIDTH + 2 * KEY_WIDTH, D_MODEL), linear(D_MODEL, WIDTH)

    def scores(self, x):
        q, k, _ = self.qkv(x).split((WIDTH, KEY_WIDTH, KEY_WIDTH), dim=-1)
        return scores(heads(q, HEADS), heads(k, KEY_HEADS))


class OldLitAttention(nn.Module):
    """litgpt before: of each group its query heads, its key and its value."""

    def __init__(self):
        super().__init__()
        self.attn, self.proj = linear(WIDTH + 2 * KEY_WIDTH, D_MODEL), linear(D_MODEL, WIDTH)

    def scores(self, x):
        return scores(*grouped(self.attn(x)))


def grouped(qkv):
    each = HEADS // KEY_HEADS
    q, k, _ = qkv.view(TOKENS, KEY_HEADS, each + 2, D_HEAD).split((each, 1, 1), dim=2)
    return q.flatten(1, 2).movedim(1, 0), k.flatten(1, 2).movedim(1, 0)


class MegatronAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_qkv, self.linear_proj = linear(WIDTH + 2 * KEY_WIDTH, D_MODEL), linear(D_MODEL, WIDTH)

    def scores(self, x):
        return scores(*grouped(self.linear_qkv(x)))


def separate(q, k, v, o, d_query=D_MODEL, d_key=D_MODEL, n_heads=HEADS, n_key_heads=KEY_HEADS, norm=""):
    """A class of attention with a Linear for each, under these names."""

    class Separate(nn.Module):
        def __init__(self):
            super().__init__()
            self.of = {}
            sizes = {q: (WIDTH, d_query), k: (KEY_WIDTH, d_key), v: (KEY_WIDTH, d_key), o: (d_query, WIDTH)}
            if n_key_heads == n_heads:
                sizes |= {k: (WIDTH, d_key), v: (WIDTH, d_key)}
            for name, size in sizes.items():
                module = nn.ModuleDict({"0": linear(*size)}) if name.endswith(".0") else linear(*size)
                self.add_module(name.removesuffix(".0"), module)
            if norm:
                self.add_module(norm, nn.Module())
                getattr(self, norm).scale = nn.Parameter(torch.ones(D_HEAD))

        def scores(self, x, other=None):
            keys = getattr(self, k)(x if other is None else other)
            return scores(heads(getattr(self, q)(x), n_heads), heads(keys, n_key_heads))

    return Separate


class LensAttention(nn.Module):
    """TransformerLens: (head, d_model, d_head); of grouped queries the keys are called _W_K."""

    def __init__(self, n_key_heads=KEY_HEADS):
        super().__init__()
        lead = "W_" if n_key_heads == HEADS else "_W_"
        sizes = {"W_Q": (HEADS, D_MODEL, D_HEAD), f"{lead}K": (n_key_heads, D_MODEL, D_HEAD)}
        sizes |= {f"{lead}V": (n_key_heads, D_MODEL, D_HEAD), "W_O": (HEADS, D_HEAD, D_MODEL)}
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(size)))
        self.keys = f"{lead}K"

    def scores(self, x):
        q, k = (torch.einsum("td,hdk->htk", x, one) for one in (self.W_Q, getattr(self, self.keys)))
        return scores(q, k)


class TorchAttention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention: the logarithm of its weights is q·k / √d_head up to a constant of each row."""

    n_heads = 4

    def __init__(self):
        super().__init__(D_MODEL, 4, batch_first=True)

    def scores(self, x):
        (weights,) = self(x[None], x[None], x[None], average_attn_weights=False)[1]
        return weights.log() * (D_MODEL / 4) ** 0.5


class Layer(nn.Module):
    def __init__(self, parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def stack(make, layers, inside, **beside):
    """Layers under a name such as ``transformer.h``, the attention of each called ``inside``, and what is beside it."""
    names = layers.split(".")
    built = nn.ModuleList(Layer({inside: make()} | {name: one() for name, one in beside.items()}) for _ in range(3))
    whole = built
    for name in reversed(names):
        whole = Layer({name: whole})
    whole.embedding = nn.Embedding(7, D_MODEL)
    return unbiased(whole), [getattr(one, inside) for one in built]


def norm():
    return nn.LayerNorm(D_MODEL)


MHA = {"n_key_heads": HEADS}
MODULES = {
    "nanoGPT": lambda: stack(NanoAttention, "transformer.h", "attn"),
    "litgpt": lambda: stack(LitAttention, "transformer.h", "attn", norm_1=norm),
    "old litgpt": lambda: stack(OldLitAttention, "transformer.h", "attn", norm_1=norm),
    "torchtune": lambda: stack(separate("q_proj", "k_proj", "v_proj", "output_proj"), "layers", "attn", sa_norm=norm),
    "torchtune with norms of heads": lambda: stack(
        separate("q_proj", "k_proj", "v_proj", "output_proj", norm="q_norm"), "layers", "attn"
    ),
    "Meta": lambda: stack(separate("wq", "wk", "wv", "wo"), "layers", "attention"),
    "TransformerLens": lambda: stack(lambda: LensAttention(HEADS), "blocks", "attn"),
    "TransformerLens, grouped": lambda: stack(LensAttention, "blocks", "attn"),
    "torch": lambda: stack(TorchAttention, "encoder.layers", "self_attn"),
    "Megatron": lambda: stack(MegatronAttention, "decoder.layers", "self_attention"),
    "of one's own": lambda: stack(separate("W_query", "W_key", "W_value", "out_proj", **MHA), "trf_blocks", "att"),
    "BERT's": lambda: stack(separate("query", "key", "value", "unused", **MHA), "encoder.layer", "self"),
}
NAMES = {
    "nanoGPT": "nanoGPT (Linear, not transposed)",
    "litgpt": "litgpt",
    "old litgpt": "litgpt",
    "torchtune": "torchtune",
    "torchtune with norms of heads": "torchtune",
    "Meta": "Meta's Llama",
    "TransformerLens": "TransformerLens",
    "TransformerLens, grouped": "TransformerLens",
    "torch": "torch.nn.MultiheadAttention",
    "Megatron": "Megatron",
    "of one's own": "W_query.weight and its kin",
    "BERT's": "query.weight and its kin",
}
TOLD = ("TransformerLens", "TransformerLens, grouped", "torchtune with norms of heads")


def made(name):
    torch.manual_seed(len(name))
    return MODULES[name]()


def advice(given, *fragments, kind=RmtbaseError, **options):
    """The error and its lines of Python."""
    with pytest.raises(kind) as caught:
        open_model(given, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)
    return "\n".join(getattr(caught.value, "__notes__", []))


def run(lines, n_heads=None, **given):
    """The model that the lines open, the blank for the number of heads filled in where they have one."""
    assert ("n_heads = ..." in lines) == (n_heads is not None)
    names = dict(given)
    exec(lines.replace("n_heads = ...", f"n_heads = {n_heads}"), names)  # what a reader does with what is printed
    return names["model"]


def assert_scores(model, layer, expected, x, other=None):
    """q·k of each head as the module has it, up to what softmax leaves out."""
    w_q, w_k = (torch.from_numpy(np.array(one)) for one in (model.queries(layer), model.keys(layer)))
    found = scores(x @ w_q.mT, (x if other is None else other) @ w_k.mT)
    centred = [one - one.mean(-1, keepdim=True) for one in (found, expected.detach())]
    torch.testing.assert_close(*centred, rtol=1e-4, atol=1e-4)


def assert_right(model, attention):
    assert model.n_layers == LAYERS
    x = torch.randn(TOKENS, D_MODEL)
    for layer, one in enumerate(attention):
        assert_scores(model, layer, one.scores(x), x)


def number(attention):
    return getattr(attention[0], "n_heads", HEADS)


def blank(name, attention):
    return None if name in TOLD else number(attention)


# State dicts in memory, and files of them


@pytest.mark.parametrize("name", MODULES)
def test_lines_for_a_state_dict_read_what_the_module_computes(name):
    module, attention = made(name)
    lines = advice(module.state_dict(), f"under the names of {NAMES[name]}", kind=ParameterError)
    model = run(lines, blank(name, attention), state=module.state_dict())
    assert_right(model, attention)
    assert model.has(0, "attention_output") == (name != "BERT's")
    assert model.has(0, "attention_value")


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("ending", ["pt", "safetensors", "bin"])
def test_lines_for_a_file_read_that_file(name, ending, tmp_path):
    module, attention = made(name)
    path = tmp_path / f"weights.{ending}"
    state = module.state_dict()
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    lines = advice(path, f"under the names of {NAMES[name]}", kind=CheckpointError)
    assert_right(run(lines, blank(name, attention)), attention)
    of_folder = advice(tmp_path, f"under the names of {NAMES[name]}", kind=CheckpointError)
    assert of_folder.rpartition("\n")[0] == lines.rpartition("\n")[0]  # the last has the name of what was given


def test_the_older_format_of_torch_is_looked_into(tmp_path):
    module, attention = made("nanoGPT")
    torch.save({"model": module.state_dict()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert_right(run(advice(tmp_path / "old.pt"), 4), attention)


def lightning(module):
    state = {f"net.{name}": one for name, one in module.state_dict().items()}
    loops = {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}}
    return {
        "epoch": 1, "global_step": 7, "pytorch-lightning_version": "2.5.0", "state_dict": state, "loops": loops,
        "callbacks": {}, "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3, 3)}}, "param_groups": []}],
        "lr_schedulers": [], "hparams_name": "kwargs", "hyper_parameters": {"lr": 0.1, "n_head": 4},
    }  # fmt: skip


def nano(module):
    sizes = {"n_layer": LAYERS, "n_head": 4, "n_embd": D_MODEL, "block_size": 8, "bias": False, "vocab_size": 7}
    optimizer = {"state": {0: {"exp_avg": torch.ones(3, 3), "exp_avg_sq": torch.ones(3, 3)}}}
    more = {"iter_num": 9, "best_val_loss": torch.tensor(2.0), "config": {"dropout": 0.0}}
    compiled = {f"_orig_mod.{name}": one for name, one in module.state_dict().items()}
    return {"model": compiled, "optimizer": optimizer, "model_args": sizes, **more}


def deepspeed(module):
    more = {"optimizer": None, "ds_version": "0.15", "ds_config": {"train_batch_size": 8}, "dp_world_size": 1}
    return {"module": module.state_dict(), "param_shapes": [{"a": torch.Size([3])}], **more}


TRAININGS = {
    "Lightning": (lightning, "nanoGPT", "a checkpoint of PyTorch Lightning", 4),
    "nanoGPT": (nano, "nanoGPT", "a checkpoint of nanoGPT's training", 4),
    "DeepSpeed": (deepspeed, "torch", "a file of model states (DeepSpeed)", None),
    "of one's own": (
        lambda module: {"epoch": 3, "nets": {"student": module.state_dict()}, "args": {"n_heads": HEADS}},
        "Meta",
        "a file of torch.save",
        HEADS,
    ),
}


@pytest.mark.parametrize("training", TRAININGS)
def test_lines_for_a_training_state_find_the_model_in_it(training, tmp_path):
    write, name, found, told = TRAININGS[training]
    module, attention = made(name)
    path = tmp_path / "last.ckpt"
    torch.save(write(module), path)
    lines = advice(path, f"is {found}", kind=CheckpointError)
    assert_right(run(lines, None if told else number(attention)), attention)


def test_a_state_dict_within_another_is_pointed_to():
    module, _ = made("nanoGPT")
    advice({"model": module.state_dict(), "step": 3}, "pass one of them, state['model']", kind=ParameterError)


def test_a_module_is_best_run_and_its_argument_is_named():
    module, _ = made("nanoGPT")
    module.forward = lambda tokens, targets=None: tokens
    assert advice(module, "read by running it") == 'model = open_model(module, inputs={"tokens": tokens})'


# What stands beside the weights


def test_sizes_beside_the_weights_are_read(tmp_path):
    for program, name, file, text in (
        ("meta", "Meta", "params.json", json.dumps({"dim": D_MODEL, "n_heads": HEADS, "n_kv_heads": KEY_HEADS})),
        ("lit", "litgpt", "model_config.yaml", f"name: tiny\nn_head: {HEADS}\nn_query_groups: {KEY_HEADS}\n"),
        ("old", "old litgpt", "lit_config.json", json.dumps({"n_head": HEADS, "n_query_groups": KEY_HEADS})),
    ):
        module, attention = made(name)
        folder = tmp_path / program
        folder.mkdir()
        weights = {"meta": "consolidated.00.pth", "lit": "lit_model.pth", "old": "lit_model.pth"}[program]
        torch.save(module.state_dict(), folder / weights)
        (folder / file).write_text(text)
        assert_right(run(advice(folder, f"attention of {HEADS} heads in 3 modules")), attention)


def test_mistrals_own_format(tmp_path):
    module, attention = made("Meta")
    save_file(module.state_dict(), tmp_path / "consolidated.safetensors")
    (tmp_path / "params.json").write_text(json.dumps({"n_heads": HEADS, "n_kv_heads": KEY_HEADS}))
    assert_right(run(advice(tmp_path, "Mistral's own format")), attention)


def test_megatron_is_megatron(tmp_path):
    module, attention = made("Megatron")
    folder = tmp_path / "iter_0000010" / "mp_rank_00"
    folder.mkdir(parents=True)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    sizes = argparse.Namespace(num_attention_heads=HEADS, num_query_groups=KEY_HEADS, hidden_size=D_MODEL)
    more = {"checkpoint_version": 3.0, "iteration": 10}
    torch.save({"args": sizes, "model": module.state_dict(), **more}, folder / "model_optim_rng.pt")
    lines = advice(tmp_path, "a training state of Megatron", f"attention of {HEADS} heads")
    assert "# it also names argparse.Namespace" in lines
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert_right(run(lines), attention)


def test_deepspeed_is_not_megatron(tmp_path):
    module, attention = made("torch")
    folder = tmp_path / "global_step7"
    folder.mkdir()
    torch.save(deepspeed(module), folder / "mp_rank_00_model_states.pt")
    torch.save(
        {"optimizer_state_dict": {"zero_stage": 1}, "ds_version": "0.15"}, folder / "zero_pp_rank_0_mp_rank_00.pt"
    )
    for name in ("latest", "zero_to_fp32.py"):
        (tmp_path / name).write_text("global_step7")
    assert_right(run(advice(tmp_path, "a training state of DeepSpeed"), 4), attention)
    assert_right(run(advice(folder, "a training state of DeepSpeed"), 4), attention)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_of_torch(tmp_path, monkeypatch):
    import torch.distributed.checkpoint as dcp

    module, attention = made("nanoGPT")
    state = {"model": module.state_dict(), "optimizer": {"state": {"0": {"exp_avg": torch.ones(3, 3)}}}}
    state["ema"] = {name: torch.zeros_like(one) for name, one in module.state_dict().items()}
    dcp.save(state, checkpoint_id=tmp_path / "step", no_dist=True)
    lines = advice(tmp_path / "step", "a distributed checkpoint of torch", kind=CheckpointError)
    monkeypatch.chdir(tmp_path)
    assert_right(run(lines, 4), attention)


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_a_checkpoint_of_orbax(tmp_path):
    import jax
    import orbax.checkpoint

    rng = np.random.default_rng(3)
    shapes = {"query": (D_MODEL, HEADS, D_HEAD), "key": (D_MODEL, HEADS, D_HEAD), "value": (D_MODEL, HEADS, D_HEAD)}
    shapes["out"] = (HEADS, D_HEAD, D_MODEL)
    layers = [{name: {"kernel": rng.standard_normal(s, np.float32)} for name, s in shapes.items()} for _ in range(3)]
    tree = {"params": {f"Block_{i}": {"SelfAttention_0": layer} for i, layer in enumerate(layers)}}
    with orbax.checkpoint.CheckpointManager(tmp_path / "run") as manager:
        manager.save(5, args=orbax.checkpoint.args.StandardSave(jax.tree.map(jax.numpy.asarray, tree)))
        manager.save(6, args=orbax.checkpoint.args.StandardSave(tree))  # of NumPy's arrays no shape is told
        manager.wait_until_finished()
    step = tmp_path / "run" / "5"
    opened = [run(advice(one, "a checkpoint of Orbax", f"of {HEADS} heads")) for one in (step, step / "default")]
    names = {}
    with pytest.raises(ParameterError, match=f"attention of {HEADS} heads") as caught:
        exec(advice(tmp_path / "run" / "6", "load it by the Python below"), names)
    opened.append(run("\n".join(caught.value.__notes__), state=names["state"]))
    for model in opened:
        x = torch.randn(TOKENS, D_MODEL)
        for layer, held in enumerate(layers):
            q, k = (torch.einsum("td,dhk->htk", x, torch.from_numpy(held[n]["kernel"])) for n in ("query", "key"))
            assert_scores(model, layer, scores(q, k), x)
        out = layers[1]["out"]["kernel"].reshape(WIDTH, D_MODEL).T
        np.testing.assert_array_equal(model.matrix(1, "attention_output"), out)


# Configurations of other programs


def test_timm(tmp_path):
    module, attention = stack(NanoAttention, "blocks", "attn")
    state = module.state_dict() | {"patch_embed.proj.weight": torch.randn(D_MODEL, 3, 2, 2)}
    state = {name.replace("c_attn", "qkv").replace("c_proj", "proj"): one for name, one in state.items()}
    save_file(state, tmp_path / "model.safetensors")
    config = {"architecture": "vit_tiny_patch2_8", "num_classes": 10, "num_features": D_MODEL, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = advice(tmp_path, "the configuration of a vit_tiny_patch2_8 of timm", "under the names of timm")
    assert_right(run(lines, 4), attention)


def unet(folder):
    """Two blocks down and up, whose widths and numbers of heads differ; attention to itself and to a text of 16."""
    names = ("to_q", "to_k", "to_v", "to_out.0")
    modules, expected = {}, {}
    blocks = {"down_blocks.0": 2, "down_blocks.1": 3, "mid_block": 3, "up_blocks.0": 3, "up_blocks.1": 2}
    for block, n_heads in blocks.items():
        width = 8 * n_heads
        for part, d_key in (("attn1", width), ("attn2", 16)):
            one = separate(*names, d_query=width, d_key=d_key, n_heads=n_heads, n_key_heads=n_heads)()
            name = f"{block}.attentions.0.transformer_blocks.0.{part}"
            modules[name], expected[name] = unbiased(one), (n_heads, width, d_key)
    state = {f"{at}.{name}": one for at, module in modules.items() for name, one in module.state_dict().items()}
    folder.mkdir()
    save_file(state, folder / "diffusion_pytorch_model.safetensors")
    config = {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.31.0", "attention_head_dim": [2, 3]}
    (folder / "config.json").write_text(json.dumps(config))
    return modules, expected


def assert_unet(model, modules, expected):
    assert len(model.sites) == len(modules)
    for site in model.sites:
        n_heads, width, d_key = expected[site.module]
        assert (site.n_heads, site.d_query, site.d_key) == (n_heads, width, d_key)
        assert site.place.stack == ("cross" if site.module.endswith("attn2") else "")
        x = torch.randn(TOKENS, width)
        other = torch.randn(TOKENS, d_key) if site.module.endswith("attn2") else None
        layer = model.layers.index(site.place)
        w_q, w_k = (torch.tensor(model.matrix(layer, f"attention_{one}")) for one in ("query", "key"))
        found = scores(heads(x @ w_q.T, n_heads), heads((x if other is None else other) @ w_k.T, n_heads))
        torch.testing.assert_close(found, modules[site.module].scores(x, other).detach(), rtol=1e-4, atol=1e-4)


def test_a_unet_of_diffusers_and_the_pipeline_that_it_is_in(tmp_path):
    modules, expected = unet(tmp_path / "unet")
    lines = advice(tmp_path / "unet", "the configuration of a UNet2DConditionModel of diffusers")
    assert_unet(run(lines), modules, expected)
    assert advice(tmp_path, "UNet2DConditionModel", subfolder="unet") == lines
    (tmp_path / "text_encoder").mkdir()
    (tmp_path / "text_encoder" / "config.json").write_text(json.dumps({"model_type": "clip_text_model"}))
    index = {"unet": ["diffusers", "UNet2DConditionModel"], "text_encoder": ["transformers", "CLIPTextModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline", **index}))
    whole = advice(tmp_path, "a pipeline of diffusers", "the subfolder text_encoder can be read as it is")
    assert_unet(run(whole), modules, expected)


def test_ctranslate_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"bos_token": "<s>", "layer_norm_epsilon": None}))
    name = b"TransformerDecoderSpec\0"
    (tmp_path / "model.bin").write_bytes(struct.pack("<IH", 6, len(name)) + name + bytes(50))
    lines = advice(
        tmp_path, "a model of CTranslate2", "pass the checkpoint in Hugging Face format", kind=CheckpointError
    )
    assert lines == ""


# The type is known, and the tensors are another program's


def test_nanogpt_as_gpt2_is_told_to_transpose(tmp_path):
    module, attention = made("nanoGPT")
    state, options = module.state_dict(), {"family": "gpt2", "config": {"n_head": 4}}
    lines = advice(state, "nanoGPT's linear layers are the transpose of gpt2's", kind=ShapeError, **options)
    assert_right(run(lines, state=state), attention)
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 4, "n_layer": 3, "n_embd": 24}))
    assert_right(run(advice(tmp_path, "transpose it", kind=ShapeError)), attention)


def test_a_missing_layer_of_a_known_type_prints_no_code(tmp_path):
    """Its names are those of the type, so the lines for another program's weights would not help."""
    sizes = {"n_embd": D_MODEL, "n_layer": LAYERS, "n_head": 4, "n_positions": 8, "vocab_size": 7}
    model = transformers.GPT2Model(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    model.save_pretrained(tmp_path)
    state = {name: one.clone() for name, one in model.state_dict().items() if not name.startswith("h.1.")}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(MissingTensorError, match=r"h\.1\.attn\.c_attn\.weight") as raised:
        open_model(tmp_path)
    assert not getattr(raised.value, "__notes__", [])


def test_gpt2_of_transformers_in_another_file(tmp_path):
    torch.manual_seed(1)
    sizes = {"n_embd": D_MODEL, "n_layer": LAYERS, "n_head": 4, "n_positions": 8, "vocab_size": 7}
    model = unbiased(transformers.GPT2Model(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)))
    torch.save({"state_dict": model.state_dict()}, tmp_path / "m.ckpt")
    opened = run(advice(tmp_path / "m.ckpt", "GPT-2 of transformers (Conv1D, transposed)"), 4)
    x = torch.randn(TOKENS, D_MODEL)
    for layer, block in enumerate(model.h):
        q, k, _ = block.attn.c_attn(x).split(D_MODEL, dim=-1)
        assert_scores(opened, layer, scores(heads(q, 4), heads(k, 4)), x)


SIZES = {
    "vocab_size": 7, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 8,
    "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 10}
TYPES = {
    "gpt_neox": SIZES,
    "bloom": {"vocab_size": 7, "hidden_size": 24, "n_layer": 2, "n_head": 4},
    "falcon": {**SIZES, "multi_query": True, "new_decoder_architecture": False},
    "mpt": {"vocab_size": 7, "d_model": 24, "n_layers": 2, "n_heads": 4},
    "gpt_bigcode": {"vocab_size": 7, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 8, "multi_query": True},
    "persimmon": SIZES,
    "llama": GROUPED,
    "qwen3": GROUPED,
    "olmo2": SIZES,
    "opt": {**SIZES, "ffn_dim": 8, "word_embed_proj_dim": 24, "max_position_embeddings": 8},
    "vit": {**SIZES, "image_size": 8, "patch_size": 4},
    "distilbert": {"vocab_size": 7, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 8},
    "modernbert": {**SIZES, "cls_token_id": 1, "sep_token_id": 1},
    "whisper": {
        "vocab_size": 7, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "pad_token_id": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize("model_type", TYPES)
def test_names_of_transformers_without_their_configuration(model_type):
    """As the state dict of a training state has them: read as the table, which is proved, reads them."""
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(model_type, **TYPES[model_type])
    module = transformers.AutoModel.from_config(config)
    known, state = open_model(module), module.state_dict()
    lines = advice(state, "under the names of")
    opened = run(lines, 4 if "n_heads = ..." in lines else None, state=state)
    assert len(opened.sites) == len(known.sites)
    for site in opened.sites:
        same = [one for one in known.sites if set(one.query_key_tensors()) == set(site.query_key_tensors())]
        same = same or [one for one in known.sites if one.place == site.place]  # under the names of its file
        (layer,) = (known.layers.index(one.place) for one in same)
        for component in ("attention_query", "attention_key"):
            found = opened.matrix(opened.layers.index(site.place), component)
            np.testing.assert_array_equal(found, known.matrix(layer, component))
        assert (site.n_heads, site.n_key_heads) == (same[0].n_heads, same[0].n_key_heads)


def test_queries_beside_a_gate_are_not_taken_for_heads():
    state = {
        f"layers.0.attn.{name}.weight": torch.randn(size)
        for name, size in {"q_proj": (48, 24), "k_proj": (24, 24), "v_proj": (24, 24), "o_proj": (24, 24)}.items()
    }
    assert advice(state, "expected the family") == ""


def test_stacks_of_an_encoder_and_a_decoder_are_kept_apart():
    torch.manual_seed(2)
    sizes = {"d_model": 24, "d_kv": D_HEAD, "num_heads": HEADS, "num_layers": 2, "d_ff": 8, "vocab_size": 7}
    t5 = transformers.T5Model(transformers.T5Config(**sizes))
    state = t5.state_dict()
    opened = run(advice(state, "attention in 6 modules"), HEADS, state=state)
    known = open_model(t5)
    assert {site.place.stack for site in opened.sites} == {"encoder", "decoder", "cross"}
    for site in opened.sites:
        (same,) = (one for one in known.sites if one.module == site.module)
        for component in ("attention_query", "attention_key", "attention_value", "attention_output"):
            found = opened.matrix(opened.layers.index(site.place), component)
            np.testing.assert_array_equal(found, known.matrix(known.layers.index(same.place), component))


def test_files_that_are_parts_of_a_model_are_read_together_or_not_at_all(tmp_path):
    module, attention = made("nanoGPT")
    state = module.state_dict()
    for number, layer in enumerate(range(LAYERS), 1):
        part = {name: one for name, one in state.items() if f".{layer}." in name}
        save_file(part, tmp_path / f"flux-{number:05d}-of-00003.safetensors")
    assert_right(run(advice(tmp_path, "attention in 3 modules"), 4), attention)
    (tmp_path / "flux-00002-of-00003.safetensors").unlink()
    assert advice(tmp_path, "shards without their index") == ""


def test_slices_of_tensors_are_not_taken_for_a_model(tmp_path):
    module, _ = made("Meta")
    for number in range(2):
        torch.save(module.state_dict(), tmp_path / f"consolidated.0{number}.pth")
    assert advice(tmp_path, "Meta's own release", "a part of each tensor", "convert_llama_weights_to_hf") == ""
    for rank in ("mp_rank_00", "mp_rank_01"):
        (tmp_path / "iter_1" / rank).mkdir(parents=True)
        torch.save({"model": module.state_dict()}, tmp_path / "iter_1" / rank / "model_optim_rng.pt")
    assert advice(tmp_path / "iter_1", "a training state of Megatron", "a part of each tensor") == ""


# What has no attention, or none that is known


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["layers.0.mixer.A_log", "layers.0.mixer.in_proj.weight"], "state-space model"),
        (["blocks.0.att.receptance.weight", "blocks.0.att.key.weight"], "those of RWKV, whose layers have no queries"),
        (["a.weight", "b.weight"], "no attention is recognised among its 2 tensors ('a.weight', 'b.weight')"),
        (["blocks.0.attn.qkv.weight", "b.weight"], "no attention is recognised"),  # whose rows may run in any order
    ],
)
def test_what_has_no_attention_is_told_so(names, words, tmp_path):
    state = {name: torch.randn(72, 24) for name in names}
    torch.save(state, tmp_path / "m.pth")
    save_file(state, tmp_path / "m.safetensors")
    for file in ("m.pth", "m.safetensors"):
        assert advice(tmp_path / file, words) == ""


class Runs:
    def __reduce__(self):
        return (print, ("a pickle has run code",))


def test_hostile_files_are_looked_into_and_nothing_is_made(tmp_path, capsys):
    module, _ = made("nanoGPT")
    torch.save({"state_dict": module.state_dict(), "evil": Runs()}, tmp_path / "evil.pt")
    advice(tmp_path / "evil.pt", "under the names of nanoGPT")
    whole = (tmp_path / "evil.pt").read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(60):
        damaged = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.5 else whole)
        for place in rng.integers(0, len(damaged), 8):
            damaged[place] = rng.integers(0, 256)
        (tmp_path / "evil.pt").write_bytes(damaged)
        advice(tmp_path / "evil.pt")
        pickled = bytearray(pickle.dumps({"a": [1, (2, {"b": np.ones(3)})]}, protocol=int(rng.integers(0, 6))))
        for place in rng.integers(0, len(pickled), 3):
            pickled[place] = rng.integers(0, 256)
        (tmp_path / "p.ckpt").write_bytes(pickled)
        advice(tmp_path / "p.ckpt")
    nested = current = {}
    for _ in range(300):
        current["model"] = {}
        current = current["model"]
    (tmp_path / "deep.pt").write_bytes(pickle.dumps(nested))
    advice(tmp_path / "deep.pt")
    assert "run code" not in capsys.readouterr().out


def test_names_that_could_break_out_of_the_lines_are_not_taken(tmp_path):
    bad = 'layers.0.{__import__("os")}".attn'
    state = {f"{bad}.{leaf}.weight": torch.randn(24, 24) for leaf in ("q_proj", "k_proj", "v_proj")}
    save_file(state, tmp_path / "m.safetensors")
    assert advice(tmp_path / "m.safetensors", "no attention is recognised") == ""


def test_the_command_prints_the_lines_as_they_are(tmp_path, capsys):
    from rmtbase.cli import main

    module, attention = made("TransformerLens")
    save_file(module.state_dict(), tmp_path / "lens.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path / "lens.safetensors")])
    assert ended.value.code == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("rmtbase: error: ")
    assert first.endswith("under the names of TransformerLens: open it by the Python below")
    assert_right(run("\n".join(line.removeprefix("    ") for line in lines)), attention)
