"""What is asked of a server: how long the requests are, what they share, and when they are sent.

In:   plain numbers, or a recorded trace
Out:  Workload, which the load generator sends and the simulator schedules: the same one

Start at generate.py (Workload), then requests.py and arrivals.py; lengths.py holds the distributions, shared.py common
prefixes and conversations, burstiness.py how even a schedule is, traces.py recorded ones.
"""

from inference_bench.workload.arrival_forms import ARRIVALS_FORMS as ARRIVALS_FORMS
from inference_bench.workload.arrival_forms import parse_arrivals as parse_arrivals
from inference_bench.workload.arrival_forms import says_its_rates as says_its_rates
from inference_bench.workload.arrivals import Arrivals as Arrivals
from inference_bench.workload.arrivals import ClosedLoop as ClosedLoop
from inference_bench.workload.arrivals import Constant as Constant
from inference_bench.workload.arrivals import GammaArrivals as GammaArrivals
from inference_bench.workload.arrivals import OnOff as OnOff
from inference_bench.workload.arrivals import OpenLoop as OpenLoop
from inference_bench.workload.arrivals import Poisson as Poisson
from inference_bench.workload.arrivals import open_loop as open_loop
from inference_bench.workload.burstiness import ArrivalSummary as ArrivalSummary
from inference_bench.workload.burstiness import index_of_dispersion as index_of_dispersion
from inference_bench.workload.burstiness import summarise_arrivals as summarise_arrivals
from inference_bench.workload.generate import REFERENCE_COUNT as REFERENCE_COUNT
from inference_bench.workload.generate import REFERENCE_OUTPUT as REFERENCE_OUTPUT
from inference_bench.workload.generate import REFERENCE_PROMPT as REFERENCE_PROMPT
from inference_bench.workload.generate import Workload as Workload
from inference_bench.workload.generate import closed_loop as closed_loop
from inference_bench.workload.generate import generate as generate
from inference_bench.workload.generate import reference_workload as reference_workload
from inference_bench.workload.generate import with_arrivals as with_arrivals
from inference_bench.workload.lengths import LENGTHS_FORMS as LENGTHS_FORMS
from inference_bench.workload.lengths import ClippedLognormal as ClippedLognormal
from inference_bench.workload.lengths import Empirical as Empirical
from inference_bench.workload.lengths import Fixed as Fixed
from inference_bench.workload.lengths import Lengths as Lengths
from inference_bench.workload.lengths import LongDocuments as LongDocuments
from inference_bench.workload.lengths import UniformLengths as UniformLengths
from inference_bench.workload.lengths import parse_lengths as parse_lengths
from inference_bench.workload.ramps import Ramp as Ramp
from inference_bench.workload.ramps import Steps as Steps
from inference_bench.workload.requests import Requests as Requests
from inference_bench.workload.requests import RequestShape as RequestShape
from inference_bench.workload.requests import Segment as Segment
from inference_bench.workload.shared import SegmentHits as SegmentHits
from inference_bench.workload.shared import SharedPrefix as SharedPrefix
from inference_bench.workload.shared import generate_conversations as generate_conversations
from inference_bench.workload.shared import generate_shared as generate_shared
from inference_bench.workload.shared import leading_block_hits as leading_block_hits
from inference_bench.workload.trace_formats import TRACE_FORMATS as TRACE_FORMATS
from inference_bench.workload.traces import read_trace as read_trace
