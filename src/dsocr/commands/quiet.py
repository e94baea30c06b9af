"""Keeping other libraries off the screen."""


def quiet_libraries() -> None:
    """Keep the libraries' own bars and advice off the screen; their errors still come."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # PEFT asks transformers for a property under its old name; nothing a user could do about it.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
