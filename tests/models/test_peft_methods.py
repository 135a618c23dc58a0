"""Every method and option of PEFT, from PEFT's own lists: read as PEFT itself merges it, or refused with the reason.

The table of ``docs/adapters.md`` says which; each of its rows is tried here with an adapter that PEFT makes and saves,
and PEFT opens again for the comparison.
"""

import ast
import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import peft
import pytest
import torch
import transformers
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.lora import config as lora
from peft.utils import PeftType
from safetensors.numpy import load_file, save_file

from rmtbase.errors import CheckpointError
from rmtbase.models import open_model
from tests.exhaustive import mostly_exhaustive

TABLE = Path(__file__).parents[2] / "docs" / "adapters.md"
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
WORDS = {"vocab_size": 60, "max_position_embeddings": 32}
PROMPT = {"num_virtual_tokens": 2, "task_type": "CAUSAL_LM"}
QUICK = (
    *("LORA", "init_lora_weights = 'orthogonal'", "init_lora_weights = 'pissa'", "modules_to_save = ['norm']"),
    *("use_rslora", "fan_in_fan_out", "bias = 'all'", "modules_to_save of attention"),
    *("task_type = 'SEQ_CLS'", "target_parameters of experts", "use_qalora", "IA3", "PROMPT_TUNING"),
)
"""Cases of every run; the others are exhaustive."""
QUERIES = {"target_modules": ["q_proj", "k_proj"]}

pytestmark = pytest.mark.filterwarnings("ignore")  # of peft and transformers to each other


def of(family: str, head: str, **settings: Any) -> torch.nn.Module:
    """A network of transformers with fresh weights."""
    return getattr(transformers, f"{family}{head}")(getattr(transformers, f"{family}Config")(**settings))


GROUPED = SIZES | WORDS | {"num_key_value_heads": 2}
IMAGES = SIZES | {"image_size": 16, "patch_size": 4}
OF_QWEN3 = {"num_experts": 3, "moe_intermediate_size": 16, "head_dim": 8}
OF_T5 = {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 48, "vocab_size": 60}
LAYERS = {"layers": 1, "attention_heads": 4, "ffn_dim": 48}
OF_WHISPER = {
    **{f"{side}_{size}": number for side in ("encoder", "decoder") for size, number in LAYERS.items()},
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
    "d_model": 32, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16, "vocab_size": 60,
}  # fmt: skip
OF_QWEN2_VL = {
    "text_config": GROUPED | {"rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
    "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 4, "hidden_size": 32, "patch_size": 4},
    "image_token_id": 58, "video_token_id": 57, "vision_start_token_id": 55, "vision_end_token_id": 56,
}  # fmt: skip
llama = partial(of, "Llama", "ForCausalLM", **GROUPED, pad_token_id=0)
tied_llama = partial(llama, tie_word_embeddings=True)
llama_classifier = partial(of, "Llama", "ForSequenceClassification", **GROUPED, pad_token_id=0)
bert, bert_classifier, bert_of_tokens, bert_of_answers, bert_of_masks = (
    partial(of, "Bert", head, **SIZES, **WORDS)
    for head in ("Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM")
)
gpt2 = partial(of, "GPT2", "LMHeadModel", n_embd=32, n_head=4, n_layer=2, vocab_size=60)
mixtral = partial(of, "Mixtral", "ForCausalLM", **GROUPED, num_local_experts=3)
qwen3_moe = partial(of, "Qwen3Moe", "ForCausalLM", **GROUPED, **OF_QWEN3)
whisper = partial(of, "Whisper", "ForConditionalGeneration", **OF_WHISPER)
t5 = partial(of, "T5", "ForConditionalGeneration", **OF_T5)
vit, vit_classifier = (partial(of, "ViT", head, **IMAGES) for head in ("Model", "ForImageClassification"))
qwen2_vl = partial(of, "Qwen2VL", "ForConditionalGeneration", **OF_QWEN2_VL)
siglip = partial(of, "SiglipVision", "Model", **IMAGES)


def llava() -> torch.nn.Module:
    vision, text = transformers.CLIPVisionConfig(**IMAGES), transformers.LlamaConfig(**GROUPED)
    return of("Llava", "ForConditionalGeneration", vision_config=vision, text_config=text, image_token_id=59)


class Case(NamedTuple):
    """An adapter that PEFT makes."""

    settings: dict[str, Any]  # of its configuration
    model: Callable[[], torch.nn.Module] = llama  # makes the model that is trained
    base: Callable[[], torch.nn.Module] | None = None  # makes the base that is stored, if not the same
    kind: str = "LORA"
    unread: str = "nothing"  # pattern of the tensors that PEFT changes and rmtbase says that it does not read
    save: Mapping[str, Any] = MappingProxyType({})  # options of ``save_pretrained``
    edit: Callable[[Path], None] = lambda folder: None  # changes the adapter's folder after PEFT saved it


def trained(model: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def made(case: Case, folder: Path) -> Path:
    """The folder of a base and of its adapter, as PEFT saves them."""
    torch.manual_seed(3)
    settings = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(case.kind)](**case.settings)
    model = case.model()
    base = model if case.base is None else case.base()
    if case.base is not None:
        model.base_model.load_state_dict(base.base_model.state_dict(), strict=False)
    base.save_pretrained(folder / "base")
    adapted = trained(peft.get_peft_model(model, settings))
    adapted.save_pretrained(folder / "adapter", **case.save)
    case.edit(folder / "adapter")
    return folder


def merged_by_peft(case: Case, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of the base after PEFT has opened the adapter and merged it, by the names that are stored."""
    model = case.model()
    opened = type(model).from_pretrained(folder / "base", ignore_mismatched_sizes=True)
    adapted = peft.PeftModel.from_pretrained(opened, folder / "adapter")
    adapted.merge_and_unload().save_pretrained(folder / "merged")
    return load_file(folder / "merged" / "model.safetensors")


SENTENCES = {"task_type": "SEQ_CLS"}
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def stray_norm(folder: Path) -> None:
    """A tensor that the settings do not name, which PEFT loads into the base all the same."""
    path = folder / "adapter_model.safetensors"
    save_file(load_file(path) | {"base_model.model.model.norm.weight": np.full(32, 2, np.float32)}, path)


ONE_SETTING: dict[str, Any] = {
    "r": 5, "lora_alpha": 3, "rank_pattern": {"q_proj": 2}, "use_rslora": True, "lora_dropout": 0.1,
    "exclude_modules": ["layers.0.self_attn.q_proj"], "layers_to_transform": [1], "megatron_core": "megatron.core",
    "qalora_group_size": 8, "loftq_config": {"loftq_bits": 4}, "revision": "main", "velora_config":
    lora.VeloraConfig(num_groups=4), "monteclora_config": lora.MontecloraConfig(), "corda_config":
    lora.CordaConfig(), "lora_ga_config": lora.LoraGAConfig(),
    "runtime_config": lora.LoraRuntimeConfig(ephemeral_gpu_offload=False),
}  # fmt: skip
READ: dict[str, Case] = {
    "LORA": Case(QUERIES),
    **{name: Case(QUERIES | {name: value}) for name, value in ONE_SETTING.items()},
    **{
        f"init_lora_weights = {value!r}": Case(QUERIES | {"init_lora_weights": value})
        for value in (True, False, "gaussian", "eva", "orthogonal", "mica")
    },
    "alpha_pattern": Case(QUERIES | {"alpha_pattern": {r"layers\.1\..*": 3}}),
    "use_dora": Case({"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}),
    "use_dora of convolutions": Case({"target_modules": ["q_proj", "projection"], "use_dora": True}, vit),
    "fan_in_fan_out": Case({"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}, gpt2),
    "bias = 'all'": Case({"target_modules": ["query", "key"], "bias": "all"}, bert),
    "lora_bias": Case({"target_modules": ["query", "key"], "lora_bias": True}, bert),
    "target_modules": Case({"target_modules": r".*layers\.1.*_proj"}),
    "target_modules = 'all-linear'": Case({"target_modules": "all-linear"}),
    "target_modules of embeddings": Case({"target_modules": ["q_proj", "embed_tokens"]}),
    "target_modules of convolutions": Case({"target_modules": ["q_proj", "projection"]}, vit),
    "target_modules of convolutions in one dimension": Case({"target_modules": ["q_proj", "conv1", "conv2"]}, whisper),
    "target_modules of renamed layers in two stacks": Case({"target_modules": ["q_proj", "qkv"]}, qwen2_vl),
    "task_type of images, in renamed layers": Case(
        {"target_modules": ["q_proj", "k_proj"], "modules_to_save": ["classifier"]}, vit_classifier, vit
    ),
    "target_modules of torch's own attention": Case({"target_modules": ["q_proj", "head.attention"]}, siglip),
    "target_modules of an output that is tied": Case(
        {"target_modules": ["q_proj", "proj_out"]}, whisper, unread=r".*\.decoder\.embed_tokens\.weight"
    ),
    "target_modules of two stacks": Case({"target_modules": ["q", "k", "wo"]}, t5),
    "target_modules of renamed layers": Case({"target_modules": ["q_proj"]}, llava),
    "layers_pattern": Case(QUERIES | {"layers_to_transform": [1], "layers_pattern": "layers"}),
    "modules_to_save = ['norm']": Case(QUERIES | {"modules_to_save": ["norm"]}),
    "modules_to_save = ['embed_tokens', 'norm']": Case(QUERIES | {"modules_to_save": ["embed_tokens", "norm"]}),
    "modules_to_save of attention": Case({"target_modules": ["q_proj"], "modules_to_save": ["k_proj", "o_proj"]}),
    "modules_to_save of tied embeddings": Case(QUERIES | {"modules_to_save": ["embed_tokens"]}, tied_llama),
    "ensure_weight_tying": Case(
        QUERIES | {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, tied_llama
    ),
    "task_type = 'SEQ_CLS'": Case(
        QUERIES | SENTENCES, llama_classifier, partial(of, "Llama", "Model", **GROUPED, pad_token_id=0)
    ),
    "task_type = 'SEQ_CLS' over BERT": Case(SENTENCES, bert_classifier, bert),
    "task_type = 'SEQ_CLS' over a masked model": Case(
        SENTENCES | {"modules_to_save": ["classifier", "pooler"]}, bert_classifier, bert_of_masks
    ),
    "task_type = 'TOKEN_CLS'": Case({"task_type": "TOKEN_CLS"}, bert_of_tokens, bert),
    "task_type = 'QUESTION_ANS'": Case({"task_type": "QUESTION_ANS"}, bert_of_answers, bert),
    "task_type = 'CAUSAL_LM'": Case(QUERIES | {"task_type": "CAUSAL_LM"}),
    "task_type = 'SEQ_2_SEQ_LM'": Case({"task_type": "SEQ_2_SEQ_LM", "target_modules": ["q", "v"]}, t5),
    "trainable_token_indices = [1, 5]": Case(QUERIES | {"trainable_token_indices": [1, 5]}),
    "trainable_token_indices by module": Case(
        QUERIES | {"trainable_token_indices": {"embed_tokens": [7, 2], "lm_head": [3]}}
    ),
    "trainable_token_indices of tied embeddings": Case(QUERIES | {"trainable_token_indices": [7, 2]}, tied_llama),
    "target_parameters of experts": Case(
        {"target_modules": ["q_proj"], "target_parameters": EXPERTS}, qwen3_moe, unread=r".*\.experts\..*"
    ),
    "target_parameters of renamed experts": Case(
        {"target_modules": ["q_proj", "v_proj"], "target_parameters": EXPERTS[:1]}, mixtral, unread=r".*\.experts\..*"
    ),
    "target_parameters of all linear maps and experts": Case(
        {"target_modules": ["q_proj", "w1", "w2", "w3", "gate"]}, mixtral, unread=r".*\.(experts|gate)\..*"
    ),
    "target_parameters of a weight": Case(
        {"target_modules": [], "target_parameters": ["q_proj.weight", "layers.1.self_attn.k_proj.weight"]}
    ),
    "target_parameters of a transposed weight": Case(
        {"target_modules": [], "target_parameters": ["attn.c_attn.weight", "attn.c_proj.weight"]}, gpt2
    ),
    "target_parameters with rank_pattern": Case(
        {"target_modules": ["k_proj"], "target_parameters": ["q_proj.weight"], "rank_pattern": {"q_proj.weight": 3}}
    ),
    "eva_config": Case(QUERIES | {"init_lora_weights": "eva", "eva_config": lora.EvaConfig()}),
    "inference_mode": Case(QUERIES),
    "trainable_token_indices beside the whole embedding": Case(
        QUERIES | {"trainable_token_indices": [7, 2]}, save={"save_embedding_layers": True}
    ),
    "target_parameters of attention and experts": Case(
        {"target_modules": [], "target_parameters": ["q_proj.weight", "gate_up_proj", "down_proj"]},
        qwen3_moe,
        unread=r".*\.experts\..*",
    ),
    "save_embedding_layers": Case(QUERIES, save={"save_embedding_layers": True}),
    "save_embedding_layers of other names": Case(
        {"target_modules": ["query"]}, bert, save={"save_embedding_layers": True}
    ),
    "save_pretrained as adapter_model.bin": Case(QUERIES, save={"safe_serialization": False}),
    "save_pretrained in half precision": Case(QUERIES | {"modules_to_save": ["norm"]}, lambda: llama().half()),
    "a tensor that the settings do not name": Case(QUERIES, edit=stray_norm),
}


def setting(**changes: Any) -> Callable[[Path], None]:
    """Change settings after PEFT saved them, where to make such an adapter takes data, a quantised base or Megatron."""

    def edit(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


REFUSED: dict[str, Case] = {
    **{
        f"init_lora_weights = {value!r}": Case(QUERIES | {"init_lora_weights": value})
        for value in ("pissa", "pissa_niter_4", "olora")
    },
    "init_lora_weights = 'loftq'": Case(QUERIES, edit=setting(init_lora_weights="loftq")),
    "init_lora_weights = 'corda'": Case(QUERIES, edit=setting(init_lora_weights="corda")),
    "init_lora_weights = 'lora_ga'": Case(QUERIES, edit=setting(init_lora_weights="lora_ga")),
    "alora_invocation_tokens": Case(QUERIES | {"alora_invocation_tokens": [3], "task_type": "CAUSAL_LM"}),
    "arrow_config": Case(QUERIES, edit=setting(arrow_config={"top_k": 2})),
    "kasa_config": Case(QUERIES | {"kasa_config": lora.KasaConfig()}),
    "layer_replication": Case(QUERIES | {"layer_replication": [(0, 2), (1, 2)]}),
    "megatron_config": Case(QUERIES, edit=setting(megatron_config={"num_layers": 2})),
    "use_bdlora": Case(QUERIES | {"use_bdlora": lora.BdLoraConfig(target_modules_bd_b=["_proj"], nblocks=2)}),
    "use_qalora": Case(QUERIES, edit=setting(use_qalora=True)),
}

CPT = {"cpt_token_ids": [1, 1], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 1], "task_type": "CAUSAL_LM"}
ADAPTIONS = {"adapter_len": 2, "adapter_layers": 1, "task_type": "CAUSAL_LM"}
PROMPTS = ("CARTRIDGE", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "PROMPT_TUNING")
OF_QUERIES: dict[str, dict[str, Any]] = {
    "ADALORA": {"total_step": 10, "init_r": 4, "target_r": 2}, "BOFT": {"boft_block_size": 2},
    "C3A": {"block_size": 8}, "FOURIERFT": {"n_frequency": 10}, "IA3": {"feedforward_modules": []}, "LOKR": {"r": 4},
    "MISS": {"r": 4}, "OFT": {"oft_block_size": 4, "r": 0}, "PSOFT": {"r": 4}, "ROAD": {"group_size": 4},
    "POLY": {"n_tasks": 2, "n_skills": 2, "r": 2}, "SHIRA": {"r": 2}, "WAVEFT": {"n_frequency": 10},
    "VBLORA": {"num_vectors": 8, "vector_length": 4},
}  # fmt: skip
METHODS: dict[str, Case] = {
    "ADAPTION_PROMPT": Case(ADAPTIONS, kind="ADAPTION_PROMPT"),
    "BEFT": Case({"target_modules": ["query", "key"]}, bert, kind="BEFT"),
    "CPT": Case(CPT, kind="CPT"),
    "LN_TUNING": Case({"target_modules": ["norm"]}, kind="LN_TUNING"),
    "TRAINABLE_TOKENS": Case({"token_indices": [1, 3], "target_modules": ["embed_tokens"]}, kind="TRAINABLE_TOKENS"),
    **{kind: Case(PROMPT, kind=kind) for kind in PROMPTS},
    **{kind: Case(QUERIES | settings, kind=kind) for kind, settings in OF_QUERIES.items()},
}
NEEDS_MORE = ("ADAMSS", "XLORA")  # scikit-learn; several adapters: these are made by their name in the settings


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """The outcome and its reason in each row of a table of the documentation."""
    section = TABLE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = (re.findall(r"(?:[^|]|(?<=\\)\|)+", line) for line in section.splitlines() if line.startswith("| `"))
    return {name.strip().strip("`"): (outcome.strip(), reason.strip()) for name, outcome, reason in cells}


def test_every_method_of_peft_and_every_option_of_lora_is_in_the_table():
    assert sorted(rows("Methods")) == sorted(kind.value for kind in PeftType)
    assert {name: outcome for name, (outcome, _) in rows("Methods").items() if outcome != "refused"} == {"LORA": "read"}
    options = {field.name for field in dataclasses.fields(peft.LoraConfig)} - {"init_lora_weights"}
    (start,) = (field.type for field in dataclasses.fields(peft.LoraConfig) if field.name == "init_lora_weights")
    values = {ast.literal_eval(f"'{value}'") for value in re.findall(r"'(.+?)'", start)} | {"lora_ga", True, False}
    named = {value.replace("[number of iters]", "4") if isinstance(value, str) else value for value in values}
    expected = options | {f"init_lora_weights = {value!r}" for value in named}
    table = rows("Options of LoRA")
    assert sorted(table) == sorted(expected)
    tried = {
        outcome: {case if case.startswith("init_lora_weights") else case.split(" ")[0] for case in cases}
        for outcome, cases in (("read", READ), ("refused", REFUSED))
    }
    assert {
        name: outcome for name, (outcome, _) in table.items() if name not in tried.get(outcome, ())
    } == dict.fromkeys(("peft_type", "auto_mapping", "peft_version", "base_model_name_or_path"), "no weights")


@pytest.mark.parametrize("name", mostly_exhaustive(READ, always=QUICK, weekly=True))
def test_what_is_read_is_what_peft_merges(name, tmp_path):
    case = READ[name]
    made(case, tmp_path)
    expected, base = merged_by_peft(case, tmp_path), load_file(tmp_path / "base" / "model.safetensors")
    model = open_model(tmp_path / "adapter", base=tmp_path / "base")
    changed = 0
    for tensor, array in expected.items():
        # PEFT saved it with another head.
        stored = next((name for name in base if name == tensor or tensor.endswith(f".{name}")), None)
        if stored is None or re.fullmatch(case.unread, stored):
            continue
        changed += array.shape != base[stored].shape or not np.array_equal(array, base[stored])
        rounding = 2 * float(np.finfo(array.dtype).eps)  # PEFT adds in the precision of the base
        found, atol = model.stored(stored).astype(float), max(2e-6, rounding / 8)
        np.testing.assert_allclose(found, array.astype(float), rtol=max(1e-5, rounding), atol=atol, err_msg=tensor)
    assert changed > 0
    left = re.compile("not read, so left as in the base|not 'proj_out', which the base does not store")
    assert any(left.search(note) for note in model.notes) == (case.unread != "nothing")


@pytest.mark.parametrize("name", mostly_exhaustive(REFUSED, always=QUICK, weekly=True))
def test_what_is_refused_is_refused_for_the_reason_in_the_table(name, tmp_path):
    outcome, reason = rows("Options of LoRA")[name]
    made(REFUSED[name], tmp_path)
    for arguments in ({"base": tmp_path / "base"}, {}):
        with pytest.raises(CheckpointError) as caught:
            open_model(tmp_path / "adapter", **arguments)
        assert outcome == "refused" and reason in str(caught.value)


@pytest.mark.parametrize(
    "kind", mostly_exhaustive([kind.value for kind in PeftType if kind != "LORA"], always=QUICK, weekly=True)
)
def test_other_methods_are_refused_for_the_reason_in_the_table(kind, tmp_path):
    case = METHODS.get(kind, Case(QUERIES, kind=kind))
    if kind in NEEDS_MORE:
        case = Case(QUERIES, edit=setting(peft_type=kind))
    made(case, tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_model(tmp_path / "adapter", base=tmp_path / "base")
    assert rows("Methods")[kind][1] in str(caught.value)
    if kind not in NEEDS_MORE:
        base = type(case.model()).from_pretrained(tmp_path / "base")
        adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
        is_merged = "merge_and_unload" in str(caught.value)
        with contextlib.nullcontext() if is_merged else pytest.raises((AttributeError, NotImplementedError)):
            adapted.merge_and_unload()


@pytest.mark.exhaustive
def test_what_changed_the_base_is_read_once_it_is_converted(tmp_path):
    """Advice of the refusal: ``path_initial_model_for_weight_conversion`` makes an adapter of the unchanged base."""
    torch.manual_seed(3)
    model = llama()
    model.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(model, peft.LoraConfig(**QUERIES, init_lora_weights="pissa", corda_config=None))
    adapted.peft_config["default"].init_lora_weights = True
    adapted.save_pretrained(tmp_path / "start")
    adapted.peft_config["default"].init_lora_weights = "pissa"
    trained(adapted).save_pretrained(
        tmp_path / "adapter", path_initial_model_for_weight_conversion=str(tmp_path / "start")
    )
    found = open_model(tmp_path / "adapter", base=tmp_path / "base")
    for name, tensor in adapted.merge_and_unload().state_dict().items():
        np.testing.assert_allclose(found.stored(name), tensor.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_tied_targets_are_changed_once(tmp_path):
    """PEFT's merge adds the one update to the one weight twice, its forward pass does not: W + s B A is right."""
    made(Case({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}, tied_llama), tmp_path)
    base = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "base")
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        embedded = adapted.get_input_embeddings()(torch.arange(60)).numpy()
    found = open_model(tmp_path / "adapter", base=tmp_path / "base").stored("model.embed_tokens.weight")
    np.testing.assert_allclose(found, embedded, rtol=1e-5, atol=1e-6)


def test_a_second_adapter_is_read_from_its_own_folder(tmp_path):
    torch.manual_seed(3)
    model = llama()
    model.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(model, peft.LoraConfig(**QUERIES))
    adapted.add_adapter("other", peft.LoraConfig(**QUERIES, r=3, modules_to_save=["norm"]))
    adapted.set_adapter("other")
    trained(adapted).save_pretrained(tmp_path / "adapter")
    found = open_model(tmp_path / "adapter" / "other", base=tmp_path / "base")
    for name, tensor in adapted.merge_and_unload().state_dict().items():
        np.testing.assert_allclose(found.stored(name), tensor.numpy(), rtol=1e-5, atol=2e-6)
