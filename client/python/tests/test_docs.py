"""The guide's Python runs as it is written, in one go, against two services."""

import pathlib
import re

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="not in the repository")
def test_the_guide_runs(services, capsys):
    cluster = services("a", "b")
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    code = "\n".join(blocks)
    for endpoint, node in (("tcp://127.0.0.1:7411", "a"), ("tcp://127.0.0.1:7421", "b")):
        assert endpoint in code
        code = code.replace(endpoint, cluster.endpoint(node))
    exec(compile(code, str(GUIDE), "exec"), {})
    out = capsys.readouterr().out
    assert "b connected" in out and "done 4194304" in out and "b'layer 3 is there'" in out
    assert "NOT_FOUND" in out and "8 layers, [0, 1, 2, 3, 4, 5, 6, 7]" in out
