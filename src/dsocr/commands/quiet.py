"""Keeping other libraries off the screen."""

import os
import sys
import warnings


def quiet_libraries() -> None:
    """Keep the libraries' own bars and advice off the screen; their errors still come. Loads none of them."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    # What is loaded already has looked there before.
    if "huggingface_hub" in sys.modules:
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
    # PEFT asks transformers for a property under its old name; nothing a user could do about it.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
