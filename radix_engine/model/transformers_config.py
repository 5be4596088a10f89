"""Which models run through transformers, as far as their configuration tells.

What no configuration tells is found out once the weights are there: see transformers_trial.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from radix_engine.model.config import SUPPORTED_MODEL_TYPES, read_json
from radix_engine.model.errors import ModelError

_LAYER_TYPES = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class TransformersConfig:
    """What is known of a model before it is loaded. ``context_length`` is in tokens.

    ``kv_values_per_token`` is how many numbers one token's K and V take in all layers. It follows
    the usual fields; the loaded model has the exact value.
    """

    model_type: str
    context_length: int
    kv_values_per_token: int

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of one token's K and V in all layers."""
        return self.kv_values_per_token * dtype.itemsize


def choose_forward(folder: Path) -> Literal["own", "transformers"]:
    """Whether our own forward pass runs the model in ``folder``, or transformers does.

    Decided by model_type alone: `read_config` or `read_transformers_config` says whether that model
    can run. Raises ModelError for a missing or malformed config.json.
    """
    model_type = read_json(folder / "config.json").get("model_type")
    return "own" if model_type in SUPPORTED_MODEL_TYPES else "transformers"


def read_transformers_config(folder: Path) -> TransformersConfig:
    """Check the model in ``folder`` and return what its configuration says.

    Raises ModelError, naming the model_type and what is in the way: a type that transformers does
    not know, quantized weights, code of the model's own, an encoder, recurrent layers, attention
    that cannot be replaced. Imports transformers (seconds).
    """
    raw = read_json(folder / "config.json")
    try:
        return _read(folder, raw)
    except ModelError:
        raise
    except Exception as error:  # whatever a file that others wrote can set off in transformers
        raise ModelError(f"{folder / 'config.json'} cannot be used: {error}") from error


def _read(folder: Path, raw: Mapping[str, Any]) -> TransformersConfig:
    model_type = raw.get("model_type")
    if raw.get("quantization_config"):
        raise ModelError(
            "quantized weights (quantization_config in config.json) are not supported; "
            "use the unquantized model or a .gguf file"
        )
    config = _config(folder, model_type, raw)
    _check_class(_causal_class(config, model_type, raw), model_type)
    text = config.get_text_config(decoder=True)
    _check_layer_types(text, model_type)
    return TransformersConfig(str(model_type), _context_length(text, model_type), _kv_values(text))


def _config(folder: Path, model_type: object, raw: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig, __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        own_code = "; code that comes with a model (auto_map) is not run"
        raise ModelError(
            f"model_type {model_type!r} in config.json is not known to transformers {__version__}"
            f"{own_code if raw.get('auto_map') else ''}"
        )
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _causal_class(config: Any, model_type: object, raw: Mapping[str, Any]) -> Any:
    """The class of transformers that runs the model."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if getattr(config, "is_encoder_decoder", False):
        raise _refused(model_type, "encoder-decoder models are not supported")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise _refused(model_type, "transformers has no causal language model of this type")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    named = raw.get("architectures") or [model_class.__name__]
    brings = raw.get("auto_map") or {}
    if "AutoModelForCausalLM" in brings and model_class.__name__ not in named:
        raise _refused(
            model_type,
            f"its {named[0]} is code that comes with the model (auto_map), which is not run",
        )
    return model_class


def _check_class(model_class: Any, model_type: object) -> None:
    if getattr(model_class, "_is_stateful", False):
        raise _refused(model_type, "recurrent and hybrid models are not supported")
    replaceable = model_class.is_backend_compatible() and model_class._can_set_attn_implementation()
    if not replaceable:
        raise _refused(model_type, "its attention in transformers cannot be replaced by ours")
    taken = inspect.signature(model_class.forward).parameters
    for name in ("position_ids", "logits_to_keep"):
        if name not in taken:
            raise _refused(model_type, f"its forward pass in transformers takes no {name}")


def _check_layer_types(text: Any, model_type: object) -> None:
    kinds = set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES
    if kinds:
        names = ", ".join(sorted(map(str, kinds)))
        raise _refused(model_type, f"layers of the kind {names} are not supported")


def _context_length(text: Any, model_type: object) -> int:
    length = getattr(text, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 1:
        raise _refused(
            model_type, "config.json does not say how long a context is (max_position_embeddings)"
        )
    # Past its original length such a model rotates all its keys otherwise, those already in blocks
    # included. Up to there it is the same for everybody.
    originals = [
        rope["original_max_position_embeddings"]
        for rope in _ropes(getattr(text, "rope_parameters", None))
        if rope.get("rope_type") in ("longrope", "dynamic")
        and isinstance(rope.get("original_max_position_embeddings"), int)
    ]
    return int(min([length, *originals]))


def _ropes(parameters: Any) -> list[Mapping[str, Any]]:
    """One description of rotary positions, or one for each kind of layer."""
    if not isinstance(parameters, Mapping):
        return []
    return [parameters, *(inner for inner in parameters.values() if isinstance(inner, Mapping))]


def _kv_values(text: Any) -> int:
    values = 0
    for layer in text.per_layer_config:
        heads = layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None) or heads
        head_dim = getattr(layer, "head_dim", None) or layer.hidden_size // heads
        values += 2 * kv_heads * head_dim
    return values


def _refused(model_type: object, reason: str) -> ModelError:
    return ModelError(f"model_type {model_type!r} in config.json: {reason}")
