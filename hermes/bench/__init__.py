"""How fast it is: memory policies and stock transformers on the same frames, beside what the device could do at best."""
