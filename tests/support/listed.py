"""A torch Dataset of whatever is in a list."""

import torch

__all__ = ["Listed"]


class Listed(torch.utils.data.Dataset):
    """Its items, as they are."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]
