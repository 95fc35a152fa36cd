"""The shipped effects: what their probes say is what an independent look at the world finds, wherever their acts are cut off."""
