"""Makes the benchmarks' own modules importable: they stand beside the package, not in it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
