"""Searches that agents drive: the agent brings kernels, the server says where to look next and keeps everything.

A submission is kept before it is judged, and its node, its step's end and what its agent knows in one transaction after.
So a server may end at any moment: whoever asks next, here or at another server, takes up what was left, and nothing is
counted twice. Between two changes of a run everything is made anew from the database; a proposal made for a state that
has passed is not kept but made again.
"""

import collections
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import (
    Owner,
    RunRecord,
    StepRecord,
    Store,
    Submission,
    new_handle,
    node_handle,
)
from adaexplore_mcp.models import Edit, SearchAnswer, SearchRequest
from adaexplore_mcp.rules import SpeedRatio
from adaexplore_mcp.search import ROOT, SearchSettings
from adaexplore_mcp.services.edits import apply_edits, change_of, refuse_empty, tree_digest
from adaexplore_mcp.services.files import MAX_FILE_BYTES
from adaexplore_mcp.services.messages import not_found, shortened
from adaexplore_mcp.services.owners import is_left, this_process
from adaexplore_mcp.services.ports import Evaluations, Report, Tasks
from adaexplore_mcp.services.proposals import Proposals, RulesFor
from adaexplore_mcp.services.runverdicts import fresh_node, judged
from adaexplore_mcp.services.searchstate import RunNow, Searches
from adaexplore_mcp.services.searchwords import (
    result_of,
    short_outcome,
    shortened_text,
    stopped_because,
    under,
)
from adaexplore_mcp.services.speedlessons import step_ratio

__all__ = ["Ask", "ExploreService"]

POLL_S = 0.2
"""How often one looks whether another server, or another call, has judged a kernel."""
MAX_STARTS = 5
BEST_TIMED_AGAIN = 3
PATIENCE = 3
"""Looks after which whoever waits for a kernel that was given up has taken it up."""
ATTEMPTS = 200
"""How often a proposal is made again because the run has changed meanwhile."""
MAX_IDEA = 1000
"""Characters of what an agent says it tried that are kept; what is longer keeps its head and its tail."""
LESSON = "adapt_on_task with its node_id and lesson keeps what that teaches."
ASKED_FOR = {"small": "edit", "large": "new kernel"}


@dataclass(frozen=True, slots=True)
class Ask:
    """Who wants to go on with a run, and after which submission."""

    run_id: str
    agent: str = ""
    step_id: str = ""
    context: str = "new"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What became of a submission."""

    outcome: dict[str, Any]
    node: int | None = None
    duplicate: bool = False
    ratio: SpeedRatio | None = None
    """How many times as fast its step made the kernel, if that is sure."""


class ExploreService:
    """The searches of one database.

    Args:
        store: Where they are kept.
        tasks: What kernels are judged against.
        evaluations: Who judges them.
        lease_s: How long a proposal lives, in seconds.
        rules: Says what failures taught about a task, if anybody knows.
        now: The time, in seconds since the epoch.
        owner: The process that this is; by default the one it is.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        evaluations: Evaluations,
        *,
        lease_s: float = 1800.0,
        rules: RulesFor | None = None,
        now: Callable[[], float] = time.time,
        owner: Owner | None = None,
    ) -> None:
        self._store = store
        self._runs = store.runs
        self._tasks = tasks
        self._evaluations = evaluations
        self._lease_s = lease_s
        self._now = now
        self._owner = owner or this_process()
        self.searches = Searches(store.runs)
        self._proposals = Proposals(store, tasks, rules)
        self._queued: collections.Counter[str] = collections.Counter()
        """Steps on which calls of this process work."""

    # -- what a call asks for -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def asked(self, request: SearchRequest) -> AsyncIterator[Ask]:
        """Keep what a call brings; while this is entered, its kernel counts as worked on.

        Raises:
            RequestError: As `begin` and `submit`.
        """
        if bool(request.task_id) == bool(request.run_id):
            raise RequestError(
                "Both task_id and run_id were given."
                if request.task_id
                else "Neither task_id nor run_id was given.",
                "Give task_id to begin a run, or run_id to go on with one; get_run without arguments lists the runs.",
            )
        if request.task_id:
            yield await self.begin(request)
            return
        held = request.step_id
        self._queued[held] += 1
        try:
            yield await self.submit(request)
        finally:
            self._leave(held)

    async def begin(self, request: SearchRequest) -> Ask:
        """Keep a new run with the kernels that it begins with.

        Raises:
            NotFoundError: There is no such task.
            RequestError: A setting is out of bounds, there are too many start kernels, or no such GPU.
        """
        if request.step_id or request.edits or request.source is not None or request.resume:
            raise RequestError(
                "A run that begins has no step to answer yet.",
                f"Call search_step with task_id{under(request.agent)} alone; its answer is the first proposal. "
                "Kernels you have: start_paths.",
            )
        if len(request.starts) > MAX_STARTS:
            raise RequestError(
                f"{len(request.starts)} start_paths were given.", f"Give at most {MAX_STARTS}."
            )
        task = await self._tasks.kept(request.task_id)
        changes = {"max_steps": request.max_steps} if request.max_steps else {}
        settings = SearchSettings.preset(request.preset, **changes)
        device = self._evaluations.gpu(request.device) if request.device else ""
        run_id = new_handle("run")
        starts: dict[str, tuple[StepRecord, bytes]] = {}
        for start in request.starts:
            refuse_empty(start.source)
            digest = await _digest(start.source)
            step = StepRecord(
                step_id=new_handle("step"),
                run_id=run_id,
                step=0,
                purpose="start",
                kind="large",
                parent=ROOT,
                agent=request.agent,
                state="submitted",
                digest=digest,
                change=change_of(b"", start.source),
                path=start.path,
                charged=False,
            )
            starts.setdefault(digest, (step, start.source))
        run = RunRecord(
            run_id=run_id,
            task_id=task.task_id,
            settings=settings.to_data(),
            seed=request.seed,
            max_steps=settings.max_steps,
            agent=request.agent,
            device=device,
        )
        await self._runs.create(run, list(starts.values()))
        return Ask(run_id, request.agent, context=request.context)

    async def submit(self, request: SearchRequest) -> Ask:
        """Keep a kernel for a step, or find out where the run stands.

        Raises:
            NotFoundError: There is no such run or step.
            RequestError: The step has another kernel, the run has stopped, an edit does not fit, …
        """
        now = await self.searches.now(request.run_id)
        if late := _too_late(request):
            raise RequestError(
                f"Run {request.run_id} has begun: {' and '.join(late)} {'come' if len(late) > 1 else 'comes'} too late.",
                f"Leave it out; search_step with task_id{under(request.agent)} begins a run with it.",
            )
        if request.resume:
            await self._resume(now, request)
        given = request.source is not None or bool(request.edits)
        if not request.step_id:
            if given:
                raise RequestError(
                    "A kernel was given without step_id.",
                    f"Call search_step with run_id {request.run_id!r}{under(request.agent)} alone for a proposal, then send "
                    "the kernel with its step_id.",
                )
            return Ask(request.run_id, request.agent, context=request.context)
        step = await self._step(request.step_id, request.run_id, request.agent)
        agent = request.agent or step.agent
        ask = Ask(request.run_id, agent, step.step_id, request.context)
        if not given:
            if step.state in {"open", "expired"}:
                raise RequestError(
                    f"Step {step.step_id} waits for a kernel, and none was given.",
                    "Send kernel, kernel_path or edits; to read the proposal again, call search_step with run_id "
                    f"{request.run_id!r}{under(agent)} alone.",
                )
            return ask
        source, change = await self._kernel(step, request)
        submission = Submission(
            source=source,
            digest=await _digest(source),
            idea=shortened_text(" ".join(request.idea.split()), MAX_IDEA),
            change=change,
            agent=agent,
        )
        done = await self._runs.submit(step.step_id, submission, self._owner, self._is_gone)
        match done.verdict:
            case "answered":
                _must_equal(done.step, submission, now.run)
            case "busy":
                raise RequestError(
                    f"Another kernel of step {step.step_id} is being judged.",
                    f"Call search_step with run_id {request.run_id!r}, step_id {step.step_id!r}{under(agent, ', ')} for its outcome.",
                )
            case "closed":
                raise _closed(now.run, agent)
        return ask

    def hold(self, ask: Ask) -> None:
        """Count a call's kernel as worked on until `ended` is told of it."""
        self._queued[ask.step_id] += 1

    async def ended(self, ask: Ask, cancelled: bool) -> tuple[str, str] | None:
        """Take note that the evaluation of a call has ended: what somebody cancelled is not taken up again.

        A kernel that another call waits for is left to that.

        Args:
            ask: The call, after `hold`.
            cancelled: Whether somebody cancelled it, and not the end of its server.

        Returns:
            What the cancelled call is to say, and its next step; None if there is nothing to say.
        """
        self._leave(ask.step_id)
        if not cancelled:
            return None
        now = await self.searches.now(ask.run_id)
        mine = [step for step in _waited_for(now, ask) if step.purpose == "ask"]
        if not mine:
            return None
        for _ in range(PATIENCE):  # of who waits for the same kernel, here or at another server
            if any(step.step_id in self._queued for step in mine):
                break
            await anyio.sleep(POLL_S)
        told = {"status": "cancelled", "summary": "Its evaluation was cancelled."}
        until = self._now() + self._lease_s
        left = [
            step.step_id
            for step in mine
            if step.step_id in self._queued
            or not await self._runs.abandon(step.step_id, self._owner, told, until)
        ]
        run = f"Call search_step with run_id {ask.run_id!r}"
        if left:
            return (
                f"Another call goes on with the kernel of step {left[0]}.",
                f"{run}{under(ask.agent)} alone for where it stands.",
            )
        opened = mine[0].step_id
        return (
            f"Its kernel is given up: no node, no step used; step {opened} is open again.",
            f"{run}, step_id {opened!r}{under(ask.agent, ', ')} and another kernel, or without step_id for the proposal.",
        )

    def _leave(self, step_id: str) -> None:
        """Say that a call no longer works on a step."""
        self._queued[step_id] -= 1
        if self._queued[step_id] <= 0:
            del self._queued[step_id]

    # -- going on -----------------------------------------------------------------------------------------------------

    async def ready(self, ask: Ask) -> SearchAnswer | None:
        """Return the answer to a call, or None where kernels have to be judged first.

        Raises:
            NotFoundError: There is no such run.
        """
        for _ in range(ATTEMPTS):
            now = await self.searches.now(ask.run_id)
            if _waited_for(now, ask):
                return None
            verdict = await self._verdict(ask)
            if now.run.status == "stopped":
                return await self._stopped(now, ask, verdict)
            if (reason := now.stop_reason()) is not None:
                await self._stop(now, reason)
                continue
            step = await self._propose(now, ask)
            if step is not None:
                return await self._proposal(now, ask, verdict, step)
            if now.reserved and now.search.charged_steps + now.reserved >= now.run.max_steps:
                return self._full(now, ask, verdict)
        raise RequestError(
            f"Run {ask.run_id} changes faster than a proposal for it is made.",
            f"Call search_step with run_id {ask.run_id!r}{under(ask.agent)}.",
        )

    async def advance(self, ask: Ask, report: Report) -> SearchAnswer:
        """Judge what has to be judged, and return the answer to a call."""
        while (answer := await self.ready(ask)) is None:
            now = await self.searches.now(ask.run_id)
            for step in _waited_for(now, ask):
                await self._judge(step, report)
        return answer

    async def _propose(self, now: RunNow, ask: Ask) -> StepRecord | None:
        """Return the open proposal of an agent, else a new one; None if the run has changed, or its budget is out."""
        moment = self._now()
        until = moment + self._lease_s
        mine = next((step for step in now.open if step.agent == ask.agent), None)
        if mine is not None and mine.leased_until >= moment:
            await self._runs.renew(mine.step_id, until)
            return mine
        expired = mine or next((step for step in now.open if step.leased_until < moment), None)
        if expired is not None:
            again = dataclasses.replace(
                expired, step_id=new_handle("step"), agent=ask.agent, leased_until=until, answer={}, node=None
            )
            return again if await self._runs.propose(again, now.run.version, expired.step_id) else None
        if now.search.charged_steps + now.reserved >= now.run.max_steps:
            return None
        proposal = now.search.propose(now.run.next_step, now.proposals())
        step = StepRecord(
            step_id=new_handle("step"),
            run_id=ask.run_id,
            step=proposal.step,
            kind=proposal.kind,
            parent=proposal.parent,
            context=proposal.context,
            forced=proposal.forced,
            agent=ask.agent,
            leased_until=until,
        )
        return step if await self._runs.propose(step, now.run.version) else None

    # -- judging ------------------------------------------------------------------------------------------------------

    async def _judge(self, step: StepRecord, report: Report) -> None:
        """Judge a submission, or wait until somebody else has."""
        self._queued[step.step_id] += 1
        try:
            while True:
                claim = await self._runs.claim(step.step_id, self._owner, self._is_gone)
                match claim.verdict:
                    case "done" | "duplicate":
                        return
                    case "wait":
                        report("waiting for the same kernel, which is being judged")
                        await anyio.sleep(POLL_S)
                    case "claimed":
                        await self._evaluate(claim.step, report)
                        return
        finally:
            self._leave(step.step_id)

    async def _evaluate(self, step: StepRecord, report: Report) -> None:
        run = await self._runs.get(step.run_id)
        assert run is not None
        assert step.candidate_id is not None
        try:
            source = await self._store.evaluations.candidate(step.candidate_id)
            assert source is not None, step.candidate_id
            task = await self._tasks.get(run.task_id)
            outcome = await judged(
                self._evaluations,
                run,
                source,
                agent=step.agent,
                last=step.purpose == "final",
                edits=await self._edited(step),
                report=report,
            )
            fresh = None if step.purpose == "final" else fresh_node(outcome, task)
            until = self._now() + self._lease_s
            await self._runs.finish(step.step_id, self._owner, fresh, outcome.to_wire(), until)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._runs.release(step.step_id, self._owner)
            raise

    async def _edited(self, step: StepRecord) -> str:
        """Return the candidate_id of the kernel that a step was to edit; empty where it was to be a new one."""
        if step.kind != "small" or step.parent == ROOT:
            return ""
        return (await self._runs.nodes(step.run_id, [step.parent]))[step.parent].candidate_id

    def _is_gone(self, step: StepRecord) -> bool:
        """Tell of a submitted step whether nobody works on it any more."""
        if step.owner.pid and step.owner == self._owner:
            return step.step_id not in self._queued
        return is_left(step)

    # -- the end, and after -------------------------------------------------------------------------------------------

    async def _stop(self, now: RunNow, reason: str) -> None:
        """End a run; the best kernels are to be evaluated again. Does nothing if the run has changed meanwhile."""
        best = now.search.best(BEST_TIMED_AGAIN if self._evaluations.times else 1)
        records = await self._runs.nodes(now.run.run_id, [node.id for node in best])
        finals = []
        for node in best:
            source = await self._store.evaluations.candidate(records[node.id].candidate_id)
            assert source is not None
            step = StepRecord(
                step_id=new_handle("step"),
                run_id=now.run.run_id,
                step=now.run.round,
                purpose="final",
                kind=node.kind,
                parent=node.parent,
                state="submitted",
                digest=records[node.id].digest,
                charged=False,
                node=node.id,
            )
            finals.append((step, source))
        await self._runs.stop(now.run.run_id, now.run.version, reason, finals)

    async def _resume(self, now: RunNow, request: SearchRequest) -> None:
        done = now.search.charged_steps
        budget = request.max_steps or now.run.max_steps
        if budget <= done:
            wanted = f"; max_steps {budget} leaves none" if request.max_steps else ""
            raise RequestError(
                f"Run {now.run.run_id} has used {done} step{'s' * (done != 1)}, and its budget is {now.run.max_steps}{wanted}.",
                f"Call search_step with run_id {now.run.run_id!r}{under(request.agent, ', ')}, resume and max_steps greater than "
                f"{max(done, now.run.max_steps)}.",
            )
        SearchSettings.from_data(now.run.settings).with_changes(max_steps=budget)
        if now.run.status == "open":
            if budget == now.run.max_steps:
                return
            raise RequestError(
                f"Run {now.run.run_id} has not stopped: its budget is {now.run.max_steps} steps.",
                f"Call search_step with run_id {now.run.run_id!r}{under(request.agent)} alone: it goes on without resume.",
            )
        if not await self._runs.resume(now.run.run_id, now.run.version, budget, done):
            again = await self.searches.now(now.run.run_id)
            if again.run.status == "stopped":
                await self._resume(again, request)

    # -- answers ------------------------------------------------------------------------------------------------------

    async def _verdict(self, ask: Ask) -> _Verdict | None:
        """Return what became of the submission that a call was about."""
        if not ask.step_id:
            return None
        step = await self._step(ask.step_id, ask.run_id)
        if step.state == "answered" and step.node is not None:
            ratio = await step_ratio(self._runs, ask.run_id, step.node)
            sure = ratio if isinstance(ratio, SpeedRatio) and ratio.sure else None
            return _Verdict(dict(step.answer), step.node, ratio=sure)
        if step.node is not None:
            record = (await self._runs.nodes(ask.run_id, [step.node]))[step.node]
            return _Verdict(dict(record.outcome), step.node, duplicate=True)
        return _Verdict(dict(step.answer)) if step.answer else None

    async def _proposal(
        self, now: RunNow, ask: Ask, verdict: _Verdict | None, step: StepRecord
    ) -> SearchAnswer:
        text, shown = await self._proposals.text(
            now,
            step,
            ask.agent,
            ask.context,
            timed=self._evaluations.times,
            place=self._evaluations.place(now.run.device),
        )
        await self._runs.know(ask.run_id, ask.agent, shown)
        parent = "" if step.parent == ROOT else node_handle(ask.run_id, step.parent)
        return self._answer(
            now,
            verdict,
            said=f"Next: step {step.step}, a {step.kind} step ({ASKED_FOR[step.kind]}).",
            next_step=f"Call search_step with run_id, step_id {step.step_id!r}{under(ask.agent, ', ')} and "
            + ("edits or a kernel." if step.kind == "small" else "a whole kernel."),
            step_id=step.step_id,
            kind=step.kind,
            parent=parent,
            text=text,
        )

    def _full(self, now: RunNow, ask: Ask, verdict: _Verdict | None) -> SearchAnswer:
        return self._answer(
            now,
            verdict,
            said="The last step of the budget is out with another agent."
            if now.reserved == 1
            else f"The last {now.reserved} steps of the budget are out with other agents.",
            next_step=f"Call search_step with run_id {ask.run_id!r}{under(ask.agent)} later: a step that nobody answers is given "
            "out again.",
        )

    async def _stopped(self, now: RunNow, ask: Ask, verdict: _Verdict | None) -> SearchAnswer:
        result = result_of(now, timed=self._evaluations.times)
        which = "the best kernel" if self._evaluations.times else "a right kernel"
        best = f", get_kernel with run_id {ask.run_id!r} for {which}" if now.search.best() else ""
        more = "resume and a greater max_steps" if now.run.stop_reason == "budget" else "resume"
        return self._answer(
            now,
            verdict,
            said=f"The run has stopped: {stopped_because(now)}. {result}",
            next_step=f"Call get_run with run_id {ask.run_id!r} for what was found{best}; search_step with it{under(ask.agent, ', ')}, "
            f"{more} goes on.",
            stop_reason=now.run.stop_reason,
        )

    def _answer(
        self,
        now: RunNow,
        verdict: _Verdict | None,
        *,
        said: str,
        next_step: str,
        **fields: Any,  # noqa: ANN401 - of the answer
    ) -> SearchAnswer:
        run_id = now.run.run_id
        status, told = now.run.status, ""
        if verdict is not None:
            status = verdict.outcome.get("status", status)
            summary = str(verdict.outcome.get("summary", ""))
            if verdict.duplicate:
                told = f"The same kernel as node {verdict.node}, up to its layout: no step used. {summary} "
            elif verdict.node is None:
                told = f"No node, no step used: {summary} "
            else:
                told = f"Node {verdict.node}: {summary} "
                if any(
                    node.id == verdict.node and node.right and not node.eligible for node in now.search.nodes
                ):
                    told += "Its own kernels do none of the work: it is never the best. "
                if verdict.ratio is not None:
                    told += f"{verdict.ratio} as its parent: {LESSON} "
            short = short_outcome(verdict.outcome)
            if verdict.node is not None and fields.get("parent") != node_handle(run_id, verdict.node):
                short.pop("next_step", None)  # what would mend it: the proposal asks for something else
            fields |= {
                "node_id": "" if verdict.node is None else node_handle(run_id, verdict.node),
                "duplicate": verdict.duplicate,
                "receipt_id": str(verdict.outcome.get("receipt_id", "")),
                "outcome": short,
            }
        best = now.search.best()
        named = bool(best) and self._evaluations.times and best[0].speedup is not None
        return SearchAnswer(
            summary=f"{told}{said}",
            next_step=next_step,
            status=status,
            run_id=run_id,
            steps_left=now.steps_left,
            best=node_handle(run_id, best[0].id) if named else "",
            **fields,
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _step(self, step_id: str, run_id: str, agent: str = "") -> StepRecord:
        step = await self._runs.step(step_id)
        if step is None or step.purpose != "ask":
            known = await self._runs.ids("step", run_id)
            raise not_found(
                "step",
                step_id,
                known,
                f"Call search_step with run_id {run_id!r}{under(agent)} alone for the open one.",
            )
        if step.run_id != run_id:
            raise RequestError(
                f"Step {step_id} belongs to run {step.run_id}, not to {run_id}.",
                f"Send it with run_id {step.run_id!r}{under(agent)}.",
            )
        return step

    async def _kernel(self, step: StepRecord, request: SearchRequest) -> tuple[bytes, str]:
        """Return the submitted kernel, and what it changes of its parent."""
        if request.source is not None and request.edits:
            raise RequestError("Both a kernel and edits were given.", "Send one of them.")
        parent, name = b"", f"node {step.parent}"
        if step.parent != ROOT:
            found = await self._store.evaluations.candidate(node_handle(step.run_id, step.parent))
            assert found is not None
            parent = found
        if request.edits:
            if step.kind == "large":
                raise RequestError(
                    f"Step {step.step_id} is a large step: it asks for a whole new kernel, and edits were given.",
                    "Send the whole kernel as kernel or kernel_path.",
                )
            edits: list[Edit] = request.edits
            source = await anyio.to_thread.run_sync(apply_edits, parent, edits, name)
        else:
            assert request.source is not None
            source = request.source
        refuse_empty(source)
        if len(source) > MAX_FILE_BYTES:
            raise RequestError(
                f"The kernel has {len(source)} bytes; at most {MAX_FILE_BYTES} are taken.",
                "Leave out data and comments.",
            )
        compared = parent if step.kind == "small" else b""
        return source, await anyio.to_thread.run_sync(change_of, compared, source)


async def _digest(source: bytes) -> str:
    return await anyio.to_thread.run_sync(tree_digest, source)


def _waited_for(now: RunNow, ask: Ask) -> list[StepRecord]:
    """Return the submissions that have to be judged before a call is answered."""
    needed = [
        step
        for step in now.judged
        if step.purpose == "start"
        or step.step_id == ask.step_id
        or (step.purpose == "ask" and step.agent == ask.agent and not ask.step_id)
    ]
    if now.run.status == "stopped":
        needed += [step for step in now.finals if step.state == "submitted"]
    return needed


def _must_equal(step: StepRecord, given: Submission, run: RunRecord) -> None:
    if step.digest != given.digest:
        status = step.answer.get("status", "")
        more = f"{under(given.agent)}{' with resume' if run.status == 'stopped' else ' alone'}"
        raise RequestError(
            f"Step {step.step_id} was answered with another kernel: node {step.node}, {shortened(status)}.",
            f"Call search_step with run_id {step.run_id!r}{more} for a new proposal.",
        )


def _too_late(request: SearchRequest) -> list[str]:
    """Return what a call brings that only a beginning run can take."""
    given = {
        "device": request.device,
        "seed": request.seed,
        "preset": request.preset if request.preset != "default" else "",
        "max_steps": request.max_steps if not request.resume else 0,
        "start_paths": [start.path for start in request.starts],
    }
    return [f"{name} {value!r}" for name, value in given.items() if value]


def _closed(run: RunRecord, agent: str) -> RequestError:
    return RequestError(
        f"Run {run.run_id} has stopped ({run.stop_reason or 'just now'}): it takes no kernels.",
        f"Call search_step with run_id {run.run_id!r}{under(agent, ', ')} and resume to go on (after the budget also with a greater "
        "max_steps), or get_run for its result.",
    )
