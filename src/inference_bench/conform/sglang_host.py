"""SGLang's compiled bench client by its own command line, without importing SGLang, which wants a whole engine.

In:   the path of the extension module in an installed sglang, then the client's arguments
Out:  whatever the client writes
Leaves out: reading its result (tool_results)
Read next by: nothing; tools has it run by the Python that sglang is installed for.
"""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Load the one extension module and hand it the command line."""
    path, *arguments = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("_bench", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_argv(["sglang-bench", *arguments])


if __name__ == "__main__":
    main()
