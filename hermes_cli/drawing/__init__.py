"""Pictures of a memory, for a terminal, a file, a browser. They draw what `hermes.memory_map` counts."""
