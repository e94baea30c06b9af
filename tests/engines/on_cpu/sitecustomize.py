"""Two changes with which vLLM 0.32 runs on a CPU as these tests need it; Python runs this file when it starts.

torchvision's wheels on PyPI are made for torch with CUDA. Beside another torch their operators are missing, and the
import fails only because two of them are not declared. vLLM's image processor needs none of them.

As soon as adapters are enabled, vLLM computes routed experts with Triton, which no CPU has. The adapters here leave
routed experts alone, so these may be computed as without adapters.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

EXPERTS = "vllm.model_executor.layers.fused_moe.config"


def declare_operators() -> None:
    """Declare what torchvision misses beside a torch without CUDA."""
    import torch

    if torch.version.cuda is None and "+cpu" not in version("torchvision"):
        for name in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)


class ChangedLoader(Loader):
    """Load vLLM's settings of experts, in which adapters are never enabled."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as without this loader."""
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then change its class."""
        self.loader.exec_module(module)
        settings = module.FusedMoEConfig
        prepare = settings.__post_init__

        def prepare_without_adapters(self: Any) -> None:
            self.is_lora_enabled = False
            prepare(self)

        settings.__post_init__ = prepare_without_adapters


class Changes(MetaPathFinder):
    """See two imports before any other finder does."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return a changed module for vLLM's settings of experts, None for all others."""
        if fullname in self.seen or fullname not in {"torchvision", EXPERTS}:
            return None
        self.seen.add(fullname)
        if fullname == "torchvision":
            declare_operators()
            return None
        spec = find_spec(fullname)
        if spec is not None:
            spec.loader = ChangedLoader(spec.loader)
        return spec


sys.meta_path.insert(0, Changes())
