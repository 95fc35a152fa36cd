"""The pure heart: values in, values out. No clock, chance, files, environment, database, logging or threads."""
