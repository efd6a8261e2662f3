"""Requests made by schemathesis from /openapi.json: no error of the server, and every reply as the document says:
python3 openapi_fuzz.py <imbrex> <model>"""

import shutil
import subprocess
import sys
import tempfile

try:
    import schemathesis  # noqa: F401
except ImportError:
    print("skipped: python3 has no package schemathesis")
    sys.exit(77)

from served import Server, run_tests

SCHEMATHESIS = shutil.which("schemathesis", path=str(sys.exec_prefix) + "/bin") or shutil.which("schemathesis")


def fuzz(program, model):
    # A document cannot express all rules (a prompt fits the context, fields that need another): valid requests may be
    # refused.
    with Server(program, model, "--max-tokens", "8") as server, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([SCHEMATHESIS, "run", f"{server.url}/openapi.json", "--url", server.url, "--phases", "fuzzing",
                               "--max-examples", "20", "--exclude-checks", "positive_data_acceptance", "--seed", "1"],
                              cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        assert server.post("/v1/completions", prompt="It", max_tokens=1)[0] == 200


if __name__ == "__main__":
    run_tests([fuzz])
