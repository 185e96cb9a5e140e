"""Of which numbers matrix products are made while learning."""

import torch


def autocast(device: torch.device, precision: str, cached: bool = True) -> torch.autocast:
    """Matrix products in half precision, or nothing of the kind."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=cached)
