"""How does a program keep answering while servers fail? One request, a fixed time for it, and every attempt written down.

In:   endpoints in the order of preference, a policy, a request in the fields of the OpenAI API
Out:  the answer as it comes or as a whole, and an Answer that says who gave it, after what
Leaves out: which servers to ask (the caller's list), what is stored of it (ledger); conversations, caching, load balancing
Read next by: drill, ledger.

In order: `policy` (the numbers, and what each way to end means), `budget` (the time of one request), `backoff` (how long to pause),
`breaker` (whom not to ask), `request` (what is sent), `connections` (new or kept), `reading` and `opening` (one attempt), `hedge` (two at
once), `failures` (what the caller catches), `course` (what has happened to one request), `attempts` (from one to the next), `client`.
docs/client.md has every rule, and the test that holds it.
"""

from inference_bench.operate.client.breaker import BreakerState as BreakerState
from inference_bench.operate.client.client import Client as Client
from inference_bench.operate.client.client import Completion as Completion
from inference_bench.operate.client.client import StreamedReply as StreamedReply
from inference_bench.operate.client.failures import Cause as Cause
from inference_bench.operate.client.failures import Interrupted as Interrupted
from inference_bench.operate.client.failures import RequestFailed as RequestFailed
from inference_bench.operate.client.policy import BreakerPolicy as BreakerPolicy
from inference_bench.operate.client.policy import Policy as Policy
from inference_bench.operate.client.request import Request as Request
from inference_bench.operate.client.request import Upstream as Upstream
