"""The first program of the getting-started guide runs as it is written there."""

import pathlib
import re

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "getting-started.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="not in the repository")
def test_the_first_program_runs(services, capsys):
    text = GUIDE.read_text()
    code = re.search(r"^cat > build/try/first\.py <<'END'\n(.*?)^END$", text, re.M | re.S).group(1)
    cluster = services("a", "b")
    for endpoint, node in (("tcp://127.0.0.1:7411", "a"), ("tcp://127.0.0.1:7421", "b")):
        assert endpoint in code
        code = code.replace(endpoint, cluster.endpoint(node))
    exec(compile(code, str(GUIDE), "exec"), {})
    shown = re.search(r"first\.py\n```\n\n```\n(.*?)^```", text, re.M | re.S).group(1)
    assert capsys.readouterr().out == shown
