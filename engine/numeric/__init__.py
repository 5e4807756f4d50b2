"""Statistics without opinions, over all series at once: arrays in, arrays out, thresholds by argument."""
