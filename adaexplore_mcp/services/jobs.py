"""Run evaluations beyond the call that asked for them.

A call waits for its evaluation for a while and hears how far it is. One that lasts longer becomes a job: a row that
any server on the database can follow and cancel, owned by the process that runs it. A cancelled call cancels its
evaluation, unless that has become a job. Of an evaluation that ends within its call nothing is kept here.
"""

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from adaexplore_mcp.errors import RequestError, StoreError
from adaexplore_mcp.memory_store import JobRecord, JobStatus, JobTable, candidate_id_of, new_handle
from adaexplore_mcp.models import JobPage, JobView, Value
from adaexplore_mcp.services.jobviews import view_of
from adaexplore_mcp.services.messages import failure_of, not_found
from adaexplore_mcp.services.owners import is_gone, this_process
from adaexplore_mcp.services.ports import Notify, Report
from adaexplore_mcp.services.slots import Slots

__all__ = ["Call", "JobService"]

logger = logging.getLogger(__name__)

V = TypeVar("V", bound=Value)

Ended = Callable[[bool], Awaitable[tuple[str, str] | None]]
"""Told after work has ended and before its end is kept, also where it never began: whether somebody cancelled its job.
Returns what the cancelled job says of that and the next step, where it has more to say than that."""

PROGRESS_S = 4.0
"""A waiting caller hears at least this often; clients give up on calls that stay silent."""
PROGRESS_GAP_S = 0.1
"""And not more often than this."""
BEAT_S = 2.0
"""How often an owner says that its jobs run."""
FLAG_S = 0.5
"""How often an owner looks for requests to cancel, and a server for news of another's job."""
CANCEL_S = 5.0
"""How long cancel_job waits for the job to end."""
SETTLE_S = 3.0
"""How long the end of an evaluation may take to be written down when the server ends."""


@dataclass(frozen=True, slots=True)
class Call:
    """What asked for an evaluation, in the words that ask for it again."""

    tool: str
    arguments: Mapping[str, Any]
    """JSON-ready; without the candidate's source."""
    candidate: bytes | None = None
    """Stored when the call becomes a job; the job's arguments refer to it as `node_id`."""
    warnings: Sequence[str] = ()
    """What its source shows that a rule says cannot be done: told while it runs."""


@dataclass(frozen=True, slots=True)
class _End(Generic[V]):
    status: JobStatus
    result: V | None = None
    error: Exception | None = None
    said: tuple[str, str] = ("", "")
    """What there is to say of it, and the next step."""


class _Evaluation(Generic[V]):
    """One evaluation in progress in this process."""

    def __init__(self, call: Call, ended: Ended | None = None) -> None:
        self.call = call
        self.ended = ended
        self.scope = anyio.CancelScope()
        self.given_up = False
        self.stage = "starting"
        self.end: _End[V] | None = None
        self.job_id = ""
        self.unkept = False
        self.changed = anyio.Event()
        self._began = anyio.current_time()
        # Protects the step from call to job: an end is written to the row, or there is no row yet.
        self.lock = anyio.Lock()

    @property
    def seconds(self) -> float:
        return anyio.current_time() - self._began

    def give_up(self) -> None:
        """Cancel it because somebody asked for that; a call or a server that ends cancels the scope alone."""
        self.given_up = True
        self.scope.cancel()

    def report(self, stage: str, /) -> None:
        stage = " ".join(stage[:200].split())
        if stage != self.stage:
            self.stage = stage
            self.tell()

    def queued(self, ahead: int) -> None:
        self.report(f"queued behind {ahead}")

    def tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class JobService:
    """The evaluations of this server, and a view of those of others on the same database.

    Args:
        table: Where jobs are kept.
        parallel: Evaluations at once; more wait their turn.
    """

    def __init__(self, table: JobTable, parallel: int) -> None:
        self._table = table
        self._slots = Slots(parallel)
        self._jobs: dict[str, _Evaluation[Any]] = {}
        self._wake: anyio.Event | None = None
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def in_progress(self) -> int:
        """Evaluations of this server that hold a place now."""
        return self._slots.taken

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Own the tasks of all evaluations; leaving cancels them and marks their jobs as interrupted."""
        if self._group is not None:
            msg = "the job service runs already: one server object serves one connection at a time"
            raise RuntimeError(msg)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self._tend)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()
        finally:
            self._group = None
            self._jobs.clear()

    async def run(
        self,
        call: Call,
        work: Callable[[Report], Awaitable[V]],
        *,
        wait_s: float,
        notify: Notify,
        ended: Ended | None = None,
    ) -> V | JobView:
        """Run an evaluation and return its result, or the view of a job where it lasts longer than `wait_s`.

        Args:
            call: What asked for it.
            work: Does it; told how to report what it does. Cancelled with the call, or by cancel_job.
            wait_s: How long the caller waits, in seconds.
            notify: Told how far it is, at least every 5 s.
            ended: Told when the work has ended.

        Raises:
            RequestError: Too many evaluations wait already.
            Exception: Whatever `work` raises.
        """
        assert self._group is not None, "use JobService inside `async with running()`"
        evaluation: _Evaluation[V] = _Evaluation(call, ended)
        self._group.start_soon(self._evaluate, evaluation, work)
        try:
            await self._watch(evaluation, wait_s, notify)
            if evaluation.end is None:
                await self._promote(evaluation)
                # Cancelled meanwhile: nobody will learn the job's id.
                await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            evaluation.scope.cancel()
            raise
        match evaluation.end:
            case None:
                return self._view_running(evaluation)
            case _End(error=Exception() as error):
                raise error
            case _End(result=Value() as result):
                return result
        raise RequestError(f"The evaluation was {evaluation.end.status}.", f"Call {call.tool} again.")

    async def status(self, job_id: str, *, wait_s: float, notify: Notify) -> JobView:
        """Return where a job of any server stands, at its end or after `wait_s` seconds.

        Raises:
            NotFoundError: There is no such job; names the nearest.
        """
        if (evaluation := self._jobs.get(job_id)) is not None:
            await self._watch(evaluation, wait_s, notify)
        else:
            teller = _Teller(notify)
            with anyio.move_on_after(wait_s):
                while (job := await self._current(job_id)).status == "running":
                    await teller.tell(time.time() - job.created_at, job.stage)
                    await anyio.sleep(FLAG_S)
        return await self._view(job_id)

    async def recent(self, limit: int = 10) -> JobPage:
        """Return the latest jobs of all servers, latest first, without their results."""
        views = []
        for job in await self._table.recent(limit):
            current = await self._checked(job)
            evaluation = self._jobs.get(job.job_id)
            view = self._view_running(evaluation) if evaluation is not None else view_of(current)
            views.append(view.model_copy(update={"result": {}, "next_step": ""}))
        running = sum(view.status == "running" for view in views)
        return JobPage(
            summary=f"The latest {len(views)} job{'s' * (len(views) != 1)}, {running} running."
            if views
            else "There are no jobs.",
            next_step="Call job_status with a job_id for its progress or result." if views else "",
            jobs=views,
        )

    async def cancel(self, job_id: str) -> JobView:
        """Cancel a job of any server; one that has ended stays as it is.

        Raises:
            NotFoundError: There is no such job; names the nearest.
        """
        if (evaluation := self._jobs.get(job_id)) is not None:
            evaluation.give_up()
            with anyio.move_on_after(CANCEL_S):
                while evaluation.end is None:
                    await evaluation.changed.wait()
        elif (await self._current(job_id)).status == "running":
            await self._table.request_cancel(job_id)
            with anyio.move_on_after(CANCEL_S):
                while (await self._current(job_id)).status == "running":  # noqa: ASYNC110 - another process's row
                    await anyio.sleep(FLAG_S / 2)
        else:
            view = await self._view(job_id)
            return view.model_copy(update={"summary": f"Nothing to cancel, it had ended. {view.summary}"})
        view = await self._view(job_id)
        if view.status != "running":
            return view
        summary = f"Asked {view.tool} to end; it has not ended yet."
        return view.model_copy(update={"summary": summary})

    async def _evaluate(self, evaluation: _Evaluation[V], work: Callable[[Report], Awaitable[V]]) -> None:
        end: _End[V] = _End("interrupted")
        try:
            with evaluation.scope:
                async with self._slots.slot(evaluation.queued):
                    evaluation.report("starting")
                    end = _End("done", result=await work(evaluation.report))
            if evaluation.scope.cancelled_caught:
                end = _End("cancelled")
        except Exception as error:  # noqa: BLE001 - the outermost frame of an evaluation: becomes its answer
            end = _End("cancelled") if evaluation.scope.cancel_called else _End("failed", error=error)
        finally:
            with anyio.move_on_after(SETTLE_S, shield=True):
                end = await self._told(evaluation, end)
                async with evaluation.lock:
                    if evaluation.job_id:
                        await self._keep(evaluation, end)
            # After the row: whoever sees the end may read it there.
            evaluation.end = end
            evaluation.tell()

    async def _told(self, evaluation: _Evaluation[Any], end: _End[V]) -> _End[V]:
        """Say that work has ended to whoever wants to know; return its end, with what they say of it."""
        if evaluation.ended is None:
            return end
        try:
            said = await evaluation.ended(end.status == "cancelled" and evaluation.given_up)
        except Exception as error:  # noqa: BLE001 - as above: the end of one evaluation must not end them all
            logger.warning("the end of %s could not be kept: %s", evaluation.call.tool, error)
            return end
        return end if said is None else dataclasses.replace(end, said=said)

    async def _keep(self, evaluation: _Evaluation[Any], end: _End[Any]) -> None:
        """Write the end of a job to its row; where that fails it stays here and is tried again."""
        problem, next_step = end.said if end.error is None else failure_of(end.error, evaluation.call.tool)
        try:
            await self._table.finish(
                evaluation.job_id,
                end.status,
                result=end.result.to_wire() if end.result is not None else None,
                problem=problem,
                next_step=next_step,
            )
        except StoreError as error:
            if not evaluation.unkept:  # once: it is tried every two seconds, and hosts may never read our log
                logger.warning("the result of job %s could not be kept yet: %s", evaluation.job_id, error)
            evaluation.unkept = True
        else:
            self._jobs.pop(evaluation.job_id, None)

    async def _promote(self, evaluation: _Evaluation[Any]) -> None:
        """Make a job of an evaluation, unless it ends first."""
        with anyio.CancelScope(shield=True):
            async with evaluation.lock:
                if evaluation.end is not None:
                    return
                job_id, call, now = new_handle("job"), evaluation.call, time.time()
                arguments = dict(call.arguments)
                if call.candidate is not None:
                    arguments["node_id"] = candidate_id_of(call.candidate)
                record = JobRecord(
                    job_id=job_id,
                    tool=call.tool,
                    arguments=arguments,
                    owner=this_process(),
                    created_at=now - evaluation.seconds,
                    heartbeat_at=now,
                    stage=evaluation.stage,
                    progress=evaluation.seconds,
                )
                # Known here before the row exists: a running row that its own process does not know is interrupted.
                self._jobs[job_id] = evaluation
                try:
                    await self._table.start(record, call.candidate)
                except BaseException:
                    del self._jobs[job_id]
                    raise
                evaluation.job_id = job_id
                if self._wake is not None:
                    self._wake.set()

    async def _tend(self) -> None:
        """Beat for the jobs of this process, and end those that somebody asked to cancel."""
        beat_at, complaint = 0.0, ""
        while True:
            if not self._jobs:
                self._wake = anyio.Event()
                await self._wake.wait()
            await anyio.sleep(FLAG_S)
            try:
                for job_id in await self._table.cancel_requests(this_process()):
                    if (evaluation := self._jobs.get(job_id)) is not None:
                        evaluation.give_up()
                if anyio.current_time() >= beat_at:
                    beat_at = anyio.current_time() + BEAT_S
                    for evaluation in list(self._jobs.values()):
                        if evaluation.end is not None and evaluation.job_id:
                            await self._keep(evaluation, evaluation.end)
                    await self._table.beat(
                        {job_id: (job.stage, job.seconds) for job_id, job in self._jobs.items()}
                    )
                complaint = ""
            except StoreError as error:  # jobs go on; their rows catch up when the database is back
                if str(error) != complaint:
                    complaint = str(error)
                    logger.warning("%s", complaint)

    async def _watch(self, evaluation: _Evaluation[Any], wait_s: float, notify: Notify) -> None:
        """Wait for the end of an evaluation of this process, telling how far it is."""
        teller = _Teller(notify)
        with anyio.move_on_after(wait_s):
            while evaluation.end is None:
                changed = evaluation.changed
                pause = await teller.tell(evaluation.seconds, evaluation.stage)
                with anyio.move_on_after(pause):
                    await changed.wait()

    async def _current(self, job_id: str) -> JobRecord:
        job = await self._table.get(job_id)
        if job is None:
            latest = await self._table.ids()
            raise not_found("job", job_id, latest, "job_status without job_id lists the latest jobs.")
        return await self._checked(job)

    async def _checked(self, job: JobRecord) -> JobRecord:
        """Return a job, interrupted where it was running and its owner is gone."""
        if job.status != "running" or job.job_id in self._jobs:
            return job
        # A row of this very process that is not in `_jobs` has lost its evaluation, or has just ended: the store
        # ends only rows that still run.
        if job.owner == this_process() or is_gone(job):
            await self._table.interrupt(job.job_id)
            return await self._table.get(job.job_id) or job
        return job

    async def _view(self, job_id: str) -> JobView:
        evaluation = self._jobs.get(job_id)
        if evaluation is not None and evaluation.end is None:
            return self._view_running(evaluation)
        return view_of(await self._current(job_id))

    def _view_running(self, evaluation: _Evaluation[Any]) -> JobView:
        view = view_of(
            JobRecord(
                job_id=evaluation.job_id,
                tool=evaluation.call.tool,
                arguments=evaluation.call.arguments,
                owner=this_process(),
                created_at=time.time() - evaluation.seconds,
                heartbeat_at=time.time(),
                stage=evaluation.stage,
                progress=evaluation.seconds,
            )
        )
        return view.model_copy(update={"warnings": list(evaluation.call.warnings)})


class _Teller:
    """Tells one caller how far an evaluation is: strictly increasing, not too often, never silent for long."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._progress = -1.0
        self._message = ""
        self._told_at = float("-inf")

    async def tell(self, seconds: float, stage: str) -> float:
        """Tell where there is something to tell, and return when to come again, in seconds."""
        since = anyio.current_time() - self._told_at
        if since < PROGRESS_GAP_S:
            return PROGRESS_GAP_S - since
        if stage == self._message and since < PROGRESS_S:
            return PROGRESS_S - since
        self._progress = max(round(seconds, 2), self._progress + 0.01)
        self._message, self._told_at = stage, anyio.current_time()
        await self._notify(self._progress, f"{stage} ({seconds:.0f} s)")
        return PROGRESS_S
