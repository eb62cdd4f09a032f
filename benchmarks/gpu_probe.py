"""Print what the GPU detection and the GPU probe find on this machine, as JSON on stdout; progress goes to stderr.

Run:  PYTHONPATH=src python3 benchmarks/gpu_probe.py > gpu.json
Needs PyTorch with CUDA and nvidia-ml-py, nothing else; takes well under 90 seconds.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time

from inference_bench.errors import InferenceBenchError
from inference_bench.measure.gpu import bound_memory_bytes_per_s, detect_gpus
from inference_bench.measure.gpu_probe import measure_gpu


def main() -> int:
    started_s = time.perf_counter()
    detection = detect_gpus()
    print(f"found {[gpu.name for gpu in detection.gpus]} {detection.reason or ''}", file=sys.stderr, flush=True)
    found = {
        "detection": dataclasses.asdict(detection),
        "bound_memory_bytes_per_s": [bound_memory_bytes_per_s(gpu) for gpu in detection.gpus],
    }
    try:
        probed = measure_gpu(progress=lambda text: print(text, file=sys.stderr, flush=True))
    except InferenceBenchError as error:
        print(json.dumps(found | {"error": str(error)}, indent=1))
        print(error, file=sys.stderr)
        return error.exit_code
    took_s = time.perf_counter() - started_s
    print(json.dumps(found | {"probe": dataclasses.asdict(probed), "elapsed_s": took_s}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
