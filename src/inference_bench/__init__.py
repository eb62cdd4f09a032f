"""Does it fit, how fast could it be, what does the real server do, and where is the gap.

The public calls are gathered in `inference_bench.api`; each returns a typed result. Importing this
package costs nothing: it imports nothing.
"""

__version__ = "0.1.0"
