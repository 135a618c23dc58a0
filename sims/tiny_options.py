"""Options that a tiny model of a type needs besides sizes: layers of every kind, and numbers that its class relates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiny_models import Profile

Options = Mapping[str, Any]


def own_options(model_type: str, profile: Profile) -> Options:
    """Options of the type's configuration that neither its defaults nor the names of sizes give."""
    given = _OWN.get(model_type, {})
    return given(profile) if callable(given) else given


def _layers(*kinds: str, key: str = "layer_types") -> Callable[[Profile], Options]:
    """Layers of these kinds in turn, from the last one on where their number is odd."""

    def options(profile: Profile) -> Options:
        each = kinds[:: -1 if profile.n_layers % 2 else 1]
        return {key: [each[layer % len(each)] for layer in range(profile.n_layers)]}

    return options


def _hybrid_by_period(profile: Profile) -> Options:
    """Options with which the last layer attends and, of three or more layers, the first too."""
    period = 3 if profile.n_layers == 2 else profile.n_layers - 1
    return {"attn_layer_period": period, "attn_layer_offset": (profile.n_layers - 1) % period}


_CONVOLUTIONS: Options = {
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [16, 24, 32, 40],
        "depths": [1, 1, 1, 1],
        "out_features": ["stage4"],
    },
}
"""In the place of a backbone of timm."""
_THREE_STAGES: Options = {"out_features": ["stage2", "stage3", "stage4"]}
_SHIFTED_WINDOWS: Options = {
    "image_size": 64,
    "patch_size": 2,
    "embed_dim": 48,
    "depths": [2, 1, 1, 1],
    "num_heads": [2, 4, 8, 16],
    "window_size": 2,
    "num_layers": ...,
    "hidden_size": ...,
}
_OWN: Mapping[str, Options | Callable[[Profile], Options]] = {
    "autoformer": {"prediction_length": 6, "feature_size": ...},
    "bailing_hybrid": lambda profile: {
        **_layers("full_attention", "linear_attention")(profile),
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "head_dim": 6,
    },
    "bamba": lambda profile: {"attn_layer_indices": [1] if profile.n_layers < 3 else [0, 2]},
    "blt": lambda profile: {"num_hidden_layers": profile.n_layers},
    "blt_global_transformer": lambda profile: {"head_dim": profile.d_model // profile.n_heads},
    "blt_local_decoder": lambda profile: {"head_dim": profile.d_model // profile.n_heads},
    "blt_local_encoder": lambda profile: {"head_dim": profile.d_model // profile.n_heads},
    "blt_patcher": lambda profile: {"head_dim": profile.d_model // profile.n_heads},
    "bros": dict.fromkeys(("dim_bbox_sinusoid_emb_2d", "dim_bbox_sinusoid_emb_1d", "dim_bbox_projection"), ...),
    "canary": lambda profile: {
        "decoder_config": {"vocab_size": profile.vocab, "hidden_size": profile.nested(1).d_model}
    },
    "chameleon": {"vocabulary_map": {"<image>": 8}, "vq_config": {"base_channels": 32, "resolution": 32}},
    "clap_audio_model": {
        "num_mel_bins": 64,
        "spec_size": 256,
        "patch_size": 4,
        "patch_embeds_hidden_size": 48,
        "depths": [2, 2],
        "num_attention_heads": [2, 4],
        "num_hidden_layers": 2,
        "hidden_size": 96,
    },
    "clvp_encoder": lambda profile: {"hidden_size": 40 * profile.n_heads},
    "cohere_compass_text": {
        "rope_parameters": {
            **dict.fromkeys(("rope_type", "rope_theta", "mrope_section"), ...),
            **{kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")},
        }
    },
    "conditional_detr": _CONVOLUTIONS,
    "d_fine": {"backbone_config": _THREE_STAGES, "head_dim": ...},
    "dab-detr": _CONVOLUTIONS,
    "dbrx": lambda profile: {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": profile.n_key_heads, "clip_qkv": 8.0},
        "num_key_value_heads": profile.n_heads,  # the class does not read it
    },
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deepseek_ocr2_text": lambda profile: {
        **_layers("dense", "sparse", key="mlp_layer_types")(profile),
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1},
    "deformable_detr": {**_CONVOLUTIONS, "num_feature_levels": 1},
    "deimv2": {"backbone_config": _THREE_STAGES, "head_dim": ...},
    "detr": _CONVOLUTIONS,
    "diffusion_gemma_text": lambda profile: {
        "global_head_dim": profile.d_head + 8,
        "rope_parameters": {"full_attention": {"rope_type": "proportional"}},
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": profile.d_expert,
    },
    "donut-swin": _SHIFTED_WINDOWS,
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "emu3": {"vocabulary_map": {"<image>": 8}},
    "ernie4_5_vl_moe_text": {"rope_parameters": {"mrope_section": [3, 3, 2]}},
    "esm": {"vocab_size": 120, "pad_token_id": 1, "mask_token_id": 99},
    "gemma3n_text": lambda profile: {
        **_layers("full_attention")(profile),
        "activation_sparsity_pattern": [0.0] * profile.n_layers,
        "intermediate_size": profile.d_mlp,
        "num_kv_shared_layers": 1,
        "vocab_size_per_layer_input": profile.vocab,
        "hidden_size_per_layer_input": 16,
    },
    "glm5_next_text": lambda profile: {
        **_layers("indexed_attention", "linear_attention")(profile),
        "qk_rope_head_dim": 0,
        "qk_head_dim": 8,
        "head_dim": 0,
        "index_topk": 6,
        "index_n_heads": 2,
        "index_head_dim": 18,
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "index_kpool": 2,
    },
    "granite_docling": lambda profile: {
        "vision_config": {"out_hidden_size": profile.nested(1).d_model, "deepstack_visual_indexes": [0, 1]}
    },
    "granitemoehybrid": _layers("full_attention", "linear_attention"),
    "helium": lambda profile: {"head_dim": profile.d_model // profile.n_heads},
    "hrm_text": lambda profile: {"num_layers_per_stack": profile.n_layers, "num_hidden_layers": 8 * profile.n_layers},
    "informer": {"prediction_length": 6, "feature_size": ...},
    "jamba": _hybrid_by_period,
    "kimi_linear": lambda profile: {
        **_layers("full_attention", "linear_attention")(profile),
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "head_dim": 6,
    },
    "laguna": lambda profile: {"num_attention_heads_per_layer": [4 << layer % 2 for layer in range(profile.n_layers)]},
    "layoutlmv3": lambda profile: {
        "coordinate_size": profile.d_model // 8,
        "shape_size": profile.d_model // 4,
        "input_size": 32,
    },
    "levit": {"image_size": 64, "patch_size": 16},
    "lfm2_moe": _layers("conv", "full_attention"),
    "lilt": lambda profile: {"hidden_size": profile.d_model * 3 // 2},
    "llama4_vision_model": lambda profile: {"intermediate_size": 4 * profile.d_model},
    "longcat_flash": {"head_dim": 6},
    "lw_detr_vit": {"num_windows": 4, "num_windows_side": 2},
    "mask2former": {"feature_size": 64, "mask_feature_size": 64, "hidden_dim": 64},
    "maskformer-swin": _SHIFTED_WINDOWS,
    "mimi": lambda profile: {"upsample_groups": profile.d_model},
    "vits": lambda profile: {  # of the vocoder, which takes nearly all of its time, the least
        "upsample_initial_channel": 16,
        "upsample_rates": [2, 2],
        "upsample_kernel_sizes": [4, 4],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1]],
        "spectrogram_bins": 9,
        "posterior_encoder_num_wavenet_layers": 1,
        "prior_encoder_num_flows": 1,
        "prior_encoder_num_wavenet_layers": 1,
    },
    "ministral3": {"rope_parameters": {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16}},
    "mistral4": {
        "head_dim": 6,
        "rope_parameters": {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16},
    },
    "mistral_large4_text": lambda profile: {"kv_source_layers": list(range(profile.n_layers)), "head_dim": 6},
    "mllama_vision_model": {"intermediate_layers_indices": [0, 1]},
    "molmo2_vision": {"num_position_embeddings": 16},
    "moonshine": lambda profile: dict.fromkeys(
        ("decoder_num_attention_heads", "decoder_num_key_value_heads", "encoder_num_key_value_heads"), profile.n_heads
    ),
    "moonshine_streaming": lambda profile: {"num_key_value_heads": profile.n_heads},
    "nemotron_h": _layers("mlp", "full_attention", key="layers_block_type"),
    "neomme": {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
    "perceiver": {
        "num_latents": 5,
        "d_latents": 96,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 2,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
    },
    "phi4_multimodal_audio": lambda profile: {
        **dict.fromkeys(("ext_pw_out_channel", "depthwise_separable_out_channel"), profile.d_model),
        "nemo_conv_channels": 16,
    },
    "pix2struct_text_model": lambda profile: {"d_kv": profile.d_model // profile.n_heads, "initializer_range": 0.02},
    "pixtral": {"head_dim": ...},
    "pp_doclayout_v3": {"backbone_config": _THREE_STAGES},
    "pp_doclayout_v4": {"backbone_config": _THREE_STAGES},
    "qwen3_omni_moe": {"talker_config": {"spatial_merge_size": 2}},
    "qwen3_omni_moe_talker_text": lambda profile: {"shared_expert_intermediate_size": profile.d_expert},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 50,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ple_embed_dim": 64,
    },
    "reformer": lambda profile: {
        **_layers("local", "lsh", key="attn_layers")(profile),
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [profile.d_model // 4, 3 * profile.d_model // 4],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
    },
    "roformer": lambda profile: {"embedding_size": profile.d_model},
    "rt_detr": {"backbone_config": _THREE_STAGES},
    "rt_detr_v2": {"backbone_config": _THREE_STAGES},
    "sam2_hiera_det_model": {
        "hidden_size": 96,
        "image_size": [64, 64],
        "blocks_per_stage": [1, 1, 2, 1],
        "global_attention_blocks": [3],
    },
    "step3p5": lambda profile: {
        **_layers("full_attention", "sliding_attention")(profile),
        "sliding_window": 8,
        "num_sliding_attention_heads": 2 * profile.n_heads,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    },
    "swin": _SHIFTED_WINDOWS,
    "swin2sr": {**_SHIFTED_WINDOWS, "image_size": 16, "patch_size": 1},
    "swinv2": {**_SHIFTED_WINDOWS, "pretrained_window_sizes": [0, 0, 0, 0]},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "time_series_transformer": {"prediction_length": 6, "feature_size": ...},
    "tipsv2": lambda profile: {
        "text_config": {"hidden_size": profile.d_model},
        "vision_config": {"hidden_size": profile.d_model},
    },
    "tvp": {"max_img_size": 32, "visual_prompt_size": 4},
    "videoprism_text_model": {"attn_logit_softcapping": 50.0},
    "videoprism_vision_model": {"attn_logit_softcapping": 50.0},
    "vitpose_backbone": {"num_experts": 1, "part_features": 16},
    "vjepa2": {"frames_per_clip": 4, "crop_size": 32},
    "zamba": lambda profile: {
        **_layers("hybrid", key="layers_block_type")(profile),
        **dict.fromkeys(("attention_hidden_size", "attention_head_dim", "mamba_dt_rank"), ...),
    },
    "zamba2": lambda profile: {
        **_layers("hybrid", "hybrid", "linear_attention", key="layers_block_type")(profile),
        **dict.fromkeys(("attention_hidden_size", "attention_head_dim", "mamba_headdim", "hybrid_layer_ids"), ...),
    },
    "zaya": {"num_experts_per_tok": 1},
}
