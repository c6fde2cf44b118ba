"""What an engine's answers have to agree with: the question, the history that came before, and what
the scenario allows. An answer that cannot be true is refused; a request that ends otherwise than
the scenario lets it is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from racegate.history.finding import Finding, FindingKind
from racegate.history.run import EngineResult
from racegate.history.schedule import parse_hold
from racegate.history.trace import HoldOutcome
from racegate.oracles.findings import signature
from racegate.scenario.spec import Abort, OwnScenario, Request, ScenarioBase
from racegate.targets.adapters.reader import HistoryError, HistoryReader
from racegate.targets.adapters.wire import RanAnswer, RunQuestion

FINISHES = frozenset({"max_tokens", "stop", "abort", "unfinished"})
COUNTED_PER_STEP_MAX = 1 << 16  # far more than happens in a step, far less than a made-up number


def check_ran(question: RunQuestion, answer: RanAnswer, told: HistoryReader) -> None:
    """Whether a run's answer can be true. Raises HistoryError."""
    names = {request.name for request in question.scenario.requests}
    if answer.delivered.keys() != names or answer.finished.keys() != names:
        raise HistoryError(
            "`delivered` and `finished` have to name every request of the scenario, and no other"
        )
    if unknown := set(answer.finished.values()) - FINISHES:
        raise HistoryError(f"a request finished by {unknown.pop()!r}: {', '.join(FINISHES)}")
    most = question.scenario.steps_max
    if not max(1, told.last_step) <= answer.steps <= most:
        raise HistoryError(
            f"`steps` is {answer.steps}: the history names step {told.last_step}, and the scenario "
            f"allows {most}"
        )
    for name, count in answer.counters.items():
        if not 0 <= count <= answer.steps * COUNTED_PER_STEP_MAX:
            raise HistoryError(f"the counter {name!r} is {count} after {answer.steps} steps")
    told.check_owners()
    _check_holds(question.holds, answer.holds, told.ops)


def _check_holds(
    asked: Sequence[str], outcomes: Sequence[HoldOutcome], ops: Mapping[str, str]
) -> None:
    """ops: the operations of the history, with their lanes"""
    if tuple(outcome.hold for outcome in outcomes) != tuple(asked):
        raise HistoryError("`holds` has to say what became of each hold asked for, in order")
    for outcome in outcomes:
        op = parse_hold(outcome.hold).op
        named = sum(fnmatchcase(n, op) or fnmatchcase(f"{ops[n]}/{n}", op) for n in ops)
        if not 0 <= outcome.realised <= outcome.matched <= named:
            raise HistoryError(
                f"hold '{outcome.hold}': {outcome.matched} operations matched and "
                f"{outcome.realised} were kept, and the history has {named} that it names"
            )


def check_plain(scenario: ScenarioBase, tokens: Mapping[str, tuple[int, ...]]) -> None:
    """Whether an engine's plain decoding goes as far as the scenario does. Raises HistoryError."""
    if tokens.keys() != {request.name for request in scenario.requests}:
        raise HistoryError("plain decoding has to name every request of the scenario, and no other")
    for request in scenario.requests:
        its = tokens[request.name]
        if any(token < 0 for token in its):
            raise HistoryError(f"plain decoding of {request.name} has a negative token")
        if len(its) != end_of(request, its):
            raise HistoryError(
                f"plain decoding of {request.name} has {len(its)} tokens; by its stop token and "
                f"`max_tokens` it ends after {end_of(request, its)}"
            )


def end_of(request: Request, tokens: Sequence[int]) -> int:
    """How many tokens a request delivers that decodes these, and others behind them."""
    most = request.tokens_most
    if request.stop_token in tokens[:most]:
        return tokens.index(request.stop_token) + 1
    return most


def wrong_ends(scenario: OwnScenario, result: EngineResult) -> list[Finding]:
    """Requests that end otherwise than the scenario lets them: by an abort that nobody asked for,
    too early, too late, for another reason, or with a token that is none.
    """
    aborted = {event.request for event in scenario.events if isinstance(event, Abort)}
    findings = []
    for request in scenario.requests:
        tokens, why = result.delivered[request.name], result.finished[request.name]
        if wrong := _wrong_end(request, tokens, why, is_aborted=request.name in aborted):
            findings.append(
                Finding(
                    kind=FindingKind.LOSS,
                    signature=signature("loss", "finished"),
                    message=f"request {request.name}: {wrong}",
                    request=request.name,
                    field="finished",
                    expected=f"{end_of(request, tokens)} tokens",
                    actual=f"{len(tokens)} tokens, {why}",
                )
            )
    return findings[:1]


def _wrong_end(request: Request, tokens: Sequence[int], why: str, *, is_aborted: bool) -> str:
    """In words; empty if the scenario lets it end so."""
    if any(token < 0 for token in tokens):
        return f"it delivers {min(tokens)}, which is no token"
    end = end_of(request, tokens)
    if len(tokens) > end:
        return f"{len(tokens)} tokens are delivered, and it ends after {end}"
    if why == "unfinished":
        return ""
    if why == "abort":
        return "" if is_aborted else "the engine aborted it, and the scenario does not"
    if len(tokens) < end:
        return f"it is said to have finished by {why} after {len(tokens)} of {end} tokens"
    is_stopped = tokens[-1] == request.stop_token or len(tokens) == request.stop_after
    is_full = len(tokens) == request.max_tokens
    if not (is_full if why == "max_tokens" else is_stopped):
        return f"it is said to have finished by {why}, which the scenario does not let it"
    return ""
