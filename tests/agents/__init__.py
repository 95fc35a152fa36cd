"""Real agents, as people install them, driven against a scripted model on loopback."""
