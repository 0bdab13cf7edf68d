"""How a model adopts the operators.

    leave = patch(model)   # from here on, layer norms, attention and GELUs of the model call the operators
    leave()                # and here none does any more

Nothing else changes: neither weights, nor `state_dict`, nor the code of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from operators import attention, gelu, layer_norm
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.activations import GELUActivation
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "tilegate"
"""The name under which transformers knows our attention."""


def patch(model: torch.nn.Module) -> Callable[[], None]:
    """Route the layer norms, attention and GELUs of a model through the operators; return the way back.

    Without a release in use the operators are plain PyTorch: the patched model then gives the bits it gave
    before.
    """
    norms = [m for m in model.modules() if type(m) is torch.nn.LayerNorm and _fits(m)]
    gelus = [m for m in model.modules() if type(m) is GELUActivation and m.act is torch.nn.functional.gelu]
    encoders = [m for m in encoders_of(model) if attention_of(m) == "sdpa"]
    for norm in norms:
        norm.forward = partial(_norm, norm)
    for activation in gelus:
        activation.forward = _gelu
    for encoder in encoders:
        encoder.set_attn_implementation(ATTENTION)

    def leave() -> None:
        for module in (*norms, *gelus):
            del module.forward
        for encoder in encoders:
            encoder.set_attn_implementation("sdpa")

    return leave


def encoders_of(model: torch.nn.Module) -> list[PreTrainedModel]:
    return [m for m in model.modules() if isinstance(m, PreTrainedModel)]


def attention_of(encoder: PreTrainedModel) -> str:
    """The name by which an encoder asks transformers for its attention."""
    name: str = encoder.config._attn_implementation  # noqa: SLF001 - set_attn_implementation has no counterpart
    return name


def _fits(norm: torch.nn.LayerNorm) -> bool:
    return len(norm.normalized_shape) == 1 and norm.weight is not None and norm.bias is not None


def _norm(norm: torch.nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return layer_norm(rows, norm.weight, norm.bias, norm.eps).view_as(x)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return gelu(x.reshape(-1, x.shape[-1])).view_as(x)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls an attention. What the operator has no word for goes on to sdpa."""
    plain = not (dropout or module.is_causal or any(value is not None for value in more.values()))
    if plain and scaling == query.shape[-1] ** -0.5 and query.shape[1] == key.shape[1]:
        return attention(query, key, value, mask), None
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(module, query, key, value, mask, dropout=dropout, scaling=scaling, **more)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
