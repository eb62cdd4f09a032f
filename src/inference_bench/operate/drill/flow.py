"""The whole drill: servers are there, an undisturbed server is measured, each scenario is played, nothing is left running.

In:   DrillRequest
Out:  DrillResult, also of a drill that was interrupted: what was found out by then
Leaves out: one scenario (stage), the soak (soak), printing (report)
Read next by: cli.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TextIO

from inference_bench.engines.answers import Asker, Listed
from inference_bench.engines.base import Progress
from inference_bench.engines.embedded_model import EmbeddedModel, ensure_embedded_model
from inference_bench.errors import RequestError, StorageError, WorldError
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.operate.answers import Answer
from inference_bench.operate.drill.baseline import Undisturbed, ask_undisturbed
from inference_bench.operate.drill.results import FALLBACK, PRIMARY, DrillResult, Measured, ScenarioResult, SoakResult
from inference_bench.operate.drill.scenarios import SCENARIOS, Act, Scenario
from inference_bench.operate.drill.servers import Foreign, Restartable, Running, Server, embedded
from inference_bench.operate.drill.soak import run_soak
from inference_bench.operate.drill.stage import Played, Site, judge, play
from inference_bench.operate.drill.traffic import Asking

_ASK_S: Final = 10.0
_NOT_OURS: Final = "a server that somebody else started is not killed"
_NO_FALLBACK: Final = "there is no second server"


@dataclass(frozen=True, slots=True)
class DrillRequest:
    """What is to be played, and with which servers.

    Where:    no url: two embedded servers are started here. start replaces how a server of ours is started. soak_s: kill at random
              for so long, instead of the scenarios; record gets a line of JSON for each answer, without its text
    """

    scenarios: Sequence[Scenario] = SCENARIOS
    url: str | None = None
    fallback_url: str | None = None
    least_requests: int = 16
    max_tokens: int = 16
    allows_remote: bool = False
    api_key: ApiKey | None = None
    model: str | None = None
    soak_s: float | None = None
    kill_every_s: float = 6.0
    seed: int = 0
    record: TextIO | None = None
    start: Callable[[str], Running] | None = field(default=None, repr=False)


class AnswerFile:
    """Answers as lines of JSON; a disk that is full ends the file and not the drill."""

    def __init__(self, file: TextIO | None) -> None:
        self.unrecorded = 0
        self.why: str | None = None
        self._file = file

    def add(self, answer: Answer) -> None:
        """Write one answer."""
        if self._file is None:
            return
        if self.why is not None:
            self.unrecorded += 1
            return
        try:
            self._file.write(json.dumps(asdict(answer)) + "\n")
            self._file.flush()
        except OSError as error:
            self.unrecorded, self.why = 1, error.strerror or type(error).__name__


def check_drill(request: DrillRequest) -> None:
    """Refuse what must not be asked, before anything is sent.

    Raises:   RequestError
    """
    if request.url is None and request.fallback_url is not None:
        raise RequestError("a fallback is given without the server that it stands behind; give both, or neither")
    if request.least_requests < 4:
        raise RequestError(f"{request.least_requests} requests for each scenario are too few; give at least 4")
    if request.soak_s is not None and request.url is not None:
        raise RequestError("random kills are for servers that the drill starts itself; leave out the address")
    for url in (request.url, request.fallback_url):
        if url is not None:
            check_place(url, request.allows_remote, _what(request))


def _what(request: DrillRequest) -> str:
    least = len(request.scenarios) * request.least_requests
    return (
        f"at least {least} requests, at times several times as many as it can answer, of which many are left half read"
    )


def check_place(url: str, allows_remote: bool, what: str) -> None:
    """Whether this server may be drilled: on this machine always, elsewhere only if that was allowed.

    Where:    what says what would be done to it
    Raises:   RequestError
    """
    target = Target(url)
    if not target.address.is_this_machine and not allows_remote:
        raise RequestError(
            f"{target.address} is not on this machine, and would be sent {what}; allow that for a test server of your own only"
        )


def run_drill(request: DrillRequest, progress: Progress | None = None) -> DrillResult:
    """Break servers in the ways that are asked for, under requests of the resilient client, and account for every one of them.

    Where:    after Ctrl-C the result has what was played to its end, and says so
    Raises:   RequestError; ServerError where an undisturbed server does not answer; StorageError
    """
    check_drill(request)
    answers, say = AnswerFile(request.record), progress or (lambda _text: None)
    try:
        with ExitStack() as stack:
            site = _make_site(request, answers, stack, say)
            return _Drill(request, site, answers, say).run()
    except KeyboardInterrupt:  # before the first scenario, or while the servers are being ended
        return DrillResult({}, None, seed=request.seed, is_interrupted=True)


class _Drill:
    """What has been found out so far."""

    def __init__(self, request: DrillRequest, site: Site, answers: AnswerFile, progress: Progress) -> None:
        self._request, self._site, self._answers, self._progress = request, site, answers, progress
        self._undisturbed: dict[str, Undisturbed] = {}
        self._results: list[ScenarioResult] = []
        self._soak: SoakResult | None = None
        self._limits: Measured | None = None
        self._is_interrupted = False

    def run(self) -> DrillResult:
        try:
            self._limits = self._ask_undisturbed(PRIMARY).limits()
            if self._request.soak_s is not None:
                self._run_soak(self._limits, self._request.soak_s)
            else:
                self._play_all(self._limits)
        except KeyboardInterrupt:
            self._is_interrupted = True
        servers = {name: _described(server) for name, server in self._site.servers.items()}
        return DrillResult(
            servers,
            self._limits,
            tuple(self._results),
            self._soak,
            self._request.seed,
            self._is_interrupted or (self._soak is not None and self._soak.is_interrupted),
            self._answers.unrecorded,
            self._answers.why,
        )

    def _play_all(self, limits: Measured) -> None:
        for scenario in self._request.scenarios:
            if (why := self._why_not(scenario)) is not None:
                self._results.append(ScenarioResult(scenario.name, scenario.question, skipped=why))
                continue
            self._progress(f"{scenario.name}: {scenario.question}")
            try:
                self._results.append(self._judged(asyncio.run(play(scenario, self._site, limits))))
            except WorldError as error:  # without its servers nothing more can be played; what was found out is kept
                why = f"it could not be played to its end: {error}"
                self._results.append(ScenarioResult(scenario.name, scenario.question, problems=(why,)))
                return

    def _judged(self, played: Played) -> ScenarioResult:
        """A fallback is asked undisturbed once the scenario that wants it cold is over."""
        for name in self._site.servers:
            self._ask_undisturbed(name)
        return judge(played, {name: found.texts for name, found in self._undisturbed.items()})

    def _run_soak(self, limits: Measured, soak_s: float) -> None:
        for name in self._site.servers:
            self._ask_undisturbed(name)
        baselines = {name: found.texts for name, found in self._undisturbed.items()}
        request = self._request
        self._soak = run_soak(self._site, limits, baselines, soak_s, request.kill_every_s, request.seed, self._progress)

    def _ask_undisturbed(self, name: str) -> Undisturbed:
        if name not in self._undisturbed:
            self._progress(f"{name}: what it says undisturbed, and how fast")
            self._undisturbed[name] = asyncio.run(ask_undisturbed(self._site.upstream(name), self._site.asking))
        return self._undisturbed[name]

    def _why_not(self, scenario: Scenario) -> str | None:
        if scenario.act is Act.KILL and not self._site.servers[PRIMARY].is_ours:
            return _NOT_OURS
        if scenario.act is Act.COLD and FALLBACK not in self._site.servers:
            return _NO_FALLBACK
        return None


def _described(server: Server) -> str:
    return f"{server.address}, {'started here' if server.is_ours else 'somebody else started it'}"


def _make_site(request: DrillRequest, answers: AnswerFile, stack: ExitStack, progress: Progress) -> Site:
    asking = Asking.usual(request.max_tokens)
    servers: dict[str, Server] = {}
    targets: dict[str, Target] = {}
    if request.url is None:
        start = request.start or _embedded_starter(stack, progress)
        for name in (PRIMARY, FALLBACK):
            progress(f"{name}: starts")
            server = Restartable(partial(start, name))
            stack.callback(server.stop)
            servers[name] = server
            extra = {} if request.start is not None else {"cache_prompt": False}
            targets[name] = Target(str(server.address), endpoint=Endpoint.CHAT, extra_body=extra)
    else:
        for name, url in ((PRIMARY, request.url), (FALLBACK, request.fallback_url)):
            if url is not None:
                targets[name] = _foreign_target(url, request)
                servers[name] = Foreign(targets[name].address)
    return Site(servers, targets, asking, request.least_requests, answers.add)


def _embedded_starter(stack: ExitStack, progress: Progress) -> Callable[[str], Running]:
    model: EmbeddedModel = ensure_embedded_model(progress)
    try:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="inference-bench-drill-")))
    except OSError as error:
        raise StorageError(f"there is no place for the engines' logs: {error.strerror}") from None
    return lambda name: embedded(model, folder / f"{name}.log")


def _foreign_target(url: str, request: DrillRequest) -> Target:
    """How somebody's server is asked: its own first model, unless one is named.

    Raises:   RequestError; ServerError where it lists no model
    """
    target = Target(url, endpoint=Endpoint.CHAT, api_key=request.api_key)
    model = request.model or Listed.read(Asker(target, _ASK_S)).name
    return Target(url, model=model, endpoint=Endpoint.CHAT, api_key=request.api_key)
