"""A real engine's own log of requests beside the simulation, and the two or three numbers that make them agree.

In:   a log: for each request its lengths, when it was queued, its first and its last token
Out:  LogComparison: errors of the simulation as fractions; Calibration: fitted efficiencies with intervals, as a profile

Start at log.py (RequestLog), then log_meta.py (what the log says of the server), served_log.py (the same server,
simulated), comparison.py and fitting.py. Steps that were measured one by one are fitted in `steps`: fit_steps.
"""

from inference_bench.calibrate.comparison import LogComparison as LogComparison
from inference_bench.calibrate.comparison import Statistics as Statistics
from inference_bench.calibrate.comparison import compare_with_log as compare_with_log
from inference_bench.calibrate.fitting import Calibration as Calibration
from inference_bench.calibrate.fitting import FittedNumber as FittedNumber
from inference_bench.calibrate.fitting import calibrate as calibrate
from inference_bench.calibrate.log import RequestLog as RequestLog
from inference_bench.calibrate.log import read_log as read_log
from inference_bench.calibrate.log_meta import LogMeta as LogMeta
from inference_bench.calibrate.served_log import LoggedServer as LoggedServer
from inference_bench.calibrate.served_log import Stated as Stated
from inference_bench.calibrate.served_log import logged_server as logged_server
from inference_bench.calibrate.steps.fitting import fit_steps as fit_steps
from inference_bench.calibrate.steps.fitting import fit_steps_over as fit_steps_over
from inference_bench.calibrate.steps.forms import FittedObservation as FittedObservation
from inference_bench.calibrate.steps.forms import StepCalibration as StepCalibration
from inference_bench.calibrate.steps.forms import StepCandidate as StepCandidate
from inference_bench.calibrate.steps.forms import StepForm as StepForm
from inference_bench.calibrate.steps.forms import StepParameter as StepParameter
from inference_bench.calibrate.steps.observations import StepKind as StepKind
from inference_bench.calibrate.steps.observations import StepObservation as StepObservation
