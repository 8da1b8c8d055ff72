"""The programs that docs/guide/pytorch.md prints."""

import re
from pathlib import Path

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


def programs():
    """The Python programs of the page, which are the same in both languages."""
    pages = [(_GUIDE / name).read_text() for name in ("pytorch.md", "pytorch.zh-CN.md")]
    english, chinese = (re.findall(r"```python\n(.*?)```", page, re.DOTALL) for page in pages)
    assert english == chinese, "the pages print other programs"
    return english
