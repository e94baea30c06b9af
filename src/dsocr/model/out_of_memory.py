"""What tells the end of memory from other errors, on a graphics card and on a CPU."""


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch raises on a card and on a CPU, where its allocator has no error of its own."""
    import torch  # slow, and not needed where other programs read

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return "DefaultCPUAllocator" in text or "out of memory" in text.lower()
