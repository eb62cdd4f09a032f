"""What is asked in a batch? Fixed short prompts of different lengths, so that most of a batch is padded.

In:   nothing
Out:  PROMPTS
Read next by: flow.
"""

from __future__ import annotations

from typing import Final

PROMPTS: Final = (
    "The capital of France is",
    "Water boils at",
    "A list of the planets of the solar system, from the sun outwards:",
    "def add(a, b):\n    return",
    "One, two, three, four,",
    "The opposite of hot is",
    "In the year 1969 two people walked on the moon for the first time. Their names were",
    "Bread is made of flour, water, salt and",
    "A triangle has three sides, a square has four sides, and a hexagon has",
    "Red",
    "If a train leaves at nine in the morning and travels for three hours without a stop, it arrives at",
    "The days of the week are Monday, Tuesday,",
    "Once upon a time, in a small house at the edge of a large forest, there lived an old woman who",
    "Two plus two is",
    "The colours of the rainbow in order are red, orange, yellow,",
    "To keep food fresh for longer, put it in the",
    "The heart of a person beats about seventy times a minute, and in one hour it beats about",
    "Good morning! How are you",
)
