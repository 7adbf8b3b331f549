"""The README's Python runs as it stands, and its commands are the ones that are promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[1].strip())
def test_python_blocks_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_it_can_be_read_in_three_minutes():
    assert len(README.split()) <= 600


def test_the_three_uses_and_the_two_commands_are_there():
    assert len(BLOCKS) == 3
    assert 'python -m pip install -e ".[cli]" && dpbandits quickstart' in README
    assert 'python -m pip install -e ".[test]" && python -m pytest' in README


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
