"""THE WORDS: objects, quantities, validation, accounting. Pure; imports nothing of ours."""
