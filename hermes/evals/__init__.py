"""How often answers are right: measured on the embedded world, and on public benchmarks."""
