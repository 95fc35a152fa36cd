"""Rows of the table: (what, measured, goal, met). A row without a goal only informs."""

from random import Random
from statistics import median


def told(what, measured=""):
    return what, measured, "", True


def at_most(what, value, goal):
    return what, f"{value:.2f} x", f"<= {goal:g} x", value <= goal


def at_least(what, value, goal):
    return what, f"{value:.2f} x", f">= {goal:g} x", value >= goal


def ratio(upper, lower):
    """The median of the rounds' ratios: a disk has moods that last longer than a round, and both had the same one."""
    return median(above / below for above, below in zip(upper, lower, strict=True))


def in_turns(names, rounds):
    """The names once in each round, in another order each time: nobody always follows the same one."""
    for number in range(rounds):
        yield Random(number).sample(list(names), len(names))
