"""Trained cost models for Tensorwise, a folder each; Tensorwise finds them by the entry point of this package."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""The folder that holds the models' folders."""
