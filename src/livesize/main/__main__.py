"""`python -m livesize.main`: the same as the `livesize` command."""

from __future__ import annotations

from livesize.main.entry import main

if __name__ == "__main__":
    main()
