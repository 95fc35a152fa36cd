"""The speed goals, measured as ratios in one run: `make bench`."""
