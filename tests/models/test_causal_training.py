"""What a training starts from."""

import pytest

from dsocr.models.adapters import adapter_tensors, attach_adapter
from dsocr.models.causal_training import compile_layers
from dsocr.models.loading import load_base


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_layers_are_compiled_in_their_place_and_no_tensor_gets_another_name() -> None:
    model = attach_adapter(
        load_base("nano").network, base="nano", revision=None, target_modules="decoder", r=2, alpha=4
    )
    before = [list(model.state_dict()), list(adapter_tensors(model))]
    compile_layers(model)
    compiled = [name for name, module in model.named_modules() if module._compiled_call_impl is not None]
    assert [name.rpartition(".")[2] for name in compiled] == ["vision_tower", "language_model"]
    assert [list(model.state_dict()), list(adapter_tensors(model))] == before
