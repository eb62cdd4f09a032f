"""Is this what is served? A manifest beside running servers and files, as they are now.

In:   a Manifest; Sources
Out:  ManifestComparison
Leaves out: what to do about it
Read next by: cli.
"""

from __future__ import annotations

from inference_bench.manifest.compare import ManifestComparison, compare_found
from inference_bench.manifest.components import Manifest
from inference_bench.manifest.create import Sources, find_components
from inference_bench.manifest.hashing import Progress


def check_manifest(manifest: Manifest, sources: Sources, progress: Progress | None = None) -> ManifestComparison:
    """What the sources say now, beside what the manifest says; files are read through, whatever was hashed before.

    Raises:   RequestError for sources that are broken or contradict each other; ServerError where nothing answers
    """
    return compare_found(manifest, find_components(sources, progress))
