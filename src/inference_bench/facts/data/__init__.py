"""The tables themselves: one JSON object a line, each with its source and the date it was read."""
