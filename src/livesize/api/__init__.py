"""The API: objects, quantities, validation, accounting. Pure; imports nothing of ours."""
