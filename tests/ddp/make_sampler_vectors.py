#!/usr/bin/env python3
"""Asks PyTorch what its DistributedSampler deals out, 200 times, for test_sampler.c:

    python3 make_sampler_vectors.py > sampler_vectors.inc.h

Needs PyTorch (Debian's python3-torch); the test does not. A row holds the arguments, how many indices each rank gets, a
hash of all ranks' lists one after the other, and the first of the last rank's. The same rows come out every time."""

import random

import torch
from torch.utils.data import DistributedSampler

ROWS = 200
MASK = 2**64 - 1


def fnv(lists):
    """FNV-1a, an index at a time."""
    value = 0xCBF29CE484222325
    for indices in lists:
        for index in indices:
            value = (value ^ index) * 0x100000001B3 & MASK
    return value


def draw(dice, row):
    """Sets from a few samples to more than there are in CIFAR-10; every fourth is about as large as the world."""
    world = dice.choice([1, 2, 3, 4, 5, 7, 8, 16, dice.randint(1, 100)])
    count = dice.randint(0, 3 * world) if row % 4 == 0 else int(2 ** dice.uniform(0, 16.5))
    seed = dice.choice([0, 1, dice.randrange(1000), dice.randrange(2**32), dice.randrange(2**63)])
    epoch = dice.choice([0, 1, dice.randrange(100), dice.randrange(2**32)])
    return count, world, seed, epoch, dice.random() < 0.75, dice.random() < 0.5


def main():
    dice = random.Random(20)
    print(f"/* Made by make_sampler_vectors.py with PyTorch {torch.__version__.split('+')[0]}: count, world size, seed,")
    print(" * epoch, shuffle, drop_last; indices a rank, their hash, the last rank's first four. */")
    for row in range(ROWS):
        count, world, seed, epoch, shuffle, drop_last = draw(dice, row)
        lists = []
        for rank in range(world):
            sampler = DistributedSampler(range(count), world, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            lists.append(list(sampler))
            assert len(lists[-1]) == len(sampler)
        first = ", ".join(map(str, lists[-1][:4])) or "0"
        print(f"{{ {count}, {world}, {seed}, {epoch}, {str(shuffle).lower()}, {str(drop_last).lower()}, "
              f"{len(lists[-1])}, {fnv(lists):#018x}, {{ {first} }} }},")


if __name__ == "__main__":
    main()
