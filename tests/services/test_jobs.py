import time

import anyio
import pytest

from adaexplore_mcp.errors import NotFoundError, RequestError, StoreError, WorkerLostError
from adaexplore_mcp.memory_store import JobRecord, Owner, Store
from adaexplore_mcp.models import JobView, Outcome
from adaexplore_mcp.services import jobs as module
from adaexplore_mcp.services.jobs import Call, JobService
from adaexplore_mcp.services.owners import this_process

pytestmark = pytest.mark.anyio

CALL = Call("compile_and_verify", {"task_id": "task_1"}, b"source")
RIGHT = Outcome(summary="Right.", status="correct", task_id="task_1")


@pytest.fixture
async def store(home):
    store = Store(home / "adaexplore.db")
    yield store
    await store.aclose()


@pytest.fixture
async def other(home):
    """Another server on the same database, as far as the store is concerned."""
    store = Store(home / "adaexplore.db")
    yield store
    await store.aclose()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Poll faster than a real server: the tests wait for events, and these are events of another process."""
    monkeypatch.setattr(module, "FLAG_S", 0.02)
    monkeypatch.setattr(module, "BEAT_S", 0.05)


class Work:
    """An evaluation that a test holds in its hand."""

    def __init__(self):
        self.begun = anyio.Event()
        self.gate = anyio.Event()
        self.ended = anyio.Event()
        self.cancelled = False
        self.report = None

    async def __call__(self, report):
        self.report = report
        self.begun.set()
        try:
            await self.gate.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        finally:
            self.ended.set()
        return RIGHT


class Heard:
    """A caller that remembers what it was told."""

    def __init__(self):
        self.said = []
        self.more = anyio.Event()

    async def __call__(self, progress, message, /):
        self.said.append((progress, message))
        self.more.set()
        self.more = anyio.Event()

    @property
    def messages(self):
        return [message.rpartition(" (")[0] for _, message in self.said]

    async def until(self, message):
        with anyio.fail_after(10):
            while message not in self.messages:
                await self.more.wait()


async def in_time(awaitable):
    with anyio.fail_after(20):
        return await awaitable


async def until_status(service, job_id, status):
    with anyio.fail_after(20):
        while (view := await service.status(job_id, wait_s=0, notify=Heard())).status != status:  # noqa: ASYNC110 - a row
            await anyio.sleep(0.01)
    return view


async def test_a_short_evaluation_answers_its_call_and_leaves_no_job(store):
    service, work = JobService(store.jobs, 2), Work()
    work.gate.set()
    async with service.running():
        assert await service.run(CALL, work, wait_s=10, notify=Heard()) == RIGHT
        assert await store.jobs.recent() == []
        assert service.in_progress == 0


async def test_a_long_evaluation_becomes_a_job_whose_result_is_kept(store):
    service, work = JobService(store.jobs, 2), Work()
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        assert (view.status, view.tool) == ("running", "compile_and_verify")
        assert view.job_id in view.next_step
        work.gate.set()
        done = await in_time(service.status(view.job_id, wait_s=10, notify=Heard()))
        assert (done.status, done.result) == ("done", RIGHT.to_wire())
        assert service._jobs == {}
    kept = await store.jobs.get(view.job_id)
    assert kept.arguments["task_id"] == "task_1"
    assert await store.evaluations.candidate(kept.arguments["node_id"]) == b"source"


async def test_a_result_outlives_the_server_that_reached_it(store, other):
    service, work = JobService(store.jobs, 2), Work()
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        work.gate.set()
        await in_time(service.status(view.job_id, wait_s=10, notify=Heard()))
    later = await JobService(other.jobs, 2).status(view.job_id, wait_s=0, notify=Heard())
    assert later.result["status"] == "correct"


async def test_progress_increases_strictly_and_tells_every_new_stage(store, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_GAP_S", 0.0)
    service, work, heard = JobService(store.jobs, 2), Work(), Heard()

    async def stages():
        await work.begun.wait()
        for stage in ("loading\n the reference", "loading the reference", "running"):
            work.report(stage)
            await heard.until(" ".join(stage.split()))
        work.gate.set()

    async with service.running(), anyio.create_task_group() as group:
        group.start_soon(stages)
        await in_time(service.run(CALL, work, wait_s=60, notify=heard))
    assert heard.messages == ["starting", "loading the reference", "running"]
    figures = [progress for progress, _ in heard.said]
    assert figures == sorted(set(figures))


async def test_a_caller_hears_again_while_nothing_changes(store, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_S", 0.01)
    monkeypatch.setattr(module, "PROGRESS_GAP_S", 0.001)
    service, work, heard = JobService(store.jobs, 2), Work(), Heard()

    async def listen():
        while len(heard.said) < 5:
            await heard.more.wait()
        work.gate.set()

    async with service.running(), anyio.create_task_group() as group:
        group.start_soon(listen)
        await in_time(service.run(CALL, work, wait_s=60, notify=heard))
    figures = [progress for progress, _ in heard.said]
    assert figures == sorted(set(figures))
    assert module.PROGRESS_S < 5


async def test_a_flood_of_stages_is_told_in_part_and_the_last_one_surely(store):
    service, work, heard = JobService(store.jobs, 2), Work(), Heard()

    async def flood():
        await work.begun.wait()
        for number in range(500):
            work.report(f"stage {number}")
            await anyio.lowlevel.checkpoint()
        await heard.until("stage 499")
        work.gate.set()

    async with service.running(), anyio.create_task_group() as group:
        group.start_soon(flood)
        await in_time(service.run(CALL, work, wait_s=60, notify=heard))
    assert len(heard.said) < 100


async def test_a_cancelled_call_cancels_its_evaluation(store):
    service, work = JobService(store.jobs, 1), Work()
    async with service.running():
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: service.run(CALL, work, wait_s=60, notify=Heard()))
            await in_time(work.begun.wait())
            group.cancel_scope.cancel()
        await in_time(work.ended.wait())
        assert work.cancelled
        after = Work()
        after.gate.set()
        assert await in_time(service.run(CALL, after, wait_s=10, notify=Heard())) == RIGHT
    assert await store.jobs.recent() == []


async def test_a_caller_that_cannot_be_told_frees_its_evaluation(store):
    service, work = JobService(store.jobs, 1), Work()

    async def vanished(progress, message, /):
        if work.begun.is_set():
            raise BrokenPipeError

    async with service.running():
        async with anyio.create_task_group() as group:

            async def stage():
                await work.begun.wait()
                work.report("running")

            group.start_soon(stage)
            with pytest.raises(BrokenPipeError):
                await in_time(service.run(CALL, work, wait_s=60, notify=vanished))
        await in_time(work.ended.wait())


async def test_a_call_cancelled_after_it_became_a_job_leaves_the_job_running(store):
    service, work = JobService(store.jobs, 1), Work()
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        heard = Heard()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: service.status(view.job_id, wait_s=60, notify=heard))
            await heard.until("starting")
            group.cancel_scope.cancel()
        assert not work.cancelled
        work.gate.set()
        assert (await in_time(service.status(view.job_id, wait_s=10, notify=Heard()))).status == "done"


async def test_a_call_cancelled_while_it_becomes_a_job_cancels_it(store, monkeypatch):
    service, work = JobService(store.jobs, 1), Work()
    start = store.jobs.start

    async def cancelled_meanwhile(record, candidate):
        await start(record, candidate)
        group.cancel_scope.cancel()

    monkeypatch.setattr(store.jobs, "start", cancelled_meanwhile)
    async with service.running():
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: service.run(CALL, work, wait_s=0, notify=Heard()))
        await in_time(work.ended.wait())
        (job,) = await store.jobs.recent()
        assert (await until_status(service, job.job_id, "cancelled")).status == "cancelled"


async def test_an_evaluation_whose_job_cannot_be_kept_is_cancelled(store, monkeypatch):
    service, work = JobService(store.jobs, 1), Work()

    async def full(record, candidate):
        raise StoreError("the disk is full")

    monkeypatch.setattr(store.jobs, "start", full)
    async with service.running():
        with pytest.raises(StoreError, match="disk is full"):
            await service.run(CALL, work, wait_s=0.05, notify=Heard())
        await in_time(work.ended.wait())
        assert service._jobs == {}


async def test_a_result_that_cannot_be_kept_is_kept_later(store, monkeypatch):
    service, work = JobService(store.jobs, 1), Work()
    finish, refusals = store.jobs.finish, []

    async def full_at_first(job_id, status, **fields):
        if len(refusals) < 2:
            refusals.append(job_id)
            raise StoreError("the disk is full")
        await finish(job_id, status, **fields)

    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        monkeypatch.setattr(store.jobs, "finish", full_at_first)
        work.gate.set()
        done = await until_status(service, view.job_id, "done")
        assert done.result["status"] == "correct"
        assert len(refusals) == 2


async def test_what_an_evaluation_raises_reaches_its_caller(store):
    async def lost(report):
        raise WorkerLostError("the judge ended")

    service = JobService(store.jobs, 1)
    async with service.running():
        with pytest.raises(WorkerLostError, match="the judge ended"):
            await service.run(CALL, lost, wait_s=10, notify=Heard())
        assert service.in_progress == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RequestError("The reference is random.", "Fix the seed."), "The reference is random."),
        (WorkerLostError("the judge ended"), "the judge ended"),
        (RuntimeError("secret"), "incident"),
    ],
)
async def test_a_job_that_raised_says_what_and_tells_no_secrets(store, error, said):
    gate = anyio.Event()

    async def fails(report):
        await gate.wait()
        raise error

    service = JobService(store.jobs, 1)
    async with service.running():
        view = await service.run(CALL, fails, wait_s=0, notify=Heard())
        gate.set()
        failed = await in_time(service.status(view.job_id, wait_s=10, notify=Heard()))
    assert failed.status == "failed"
    assert said in failed.summary
    assert "secret" not in failed.summary
    assert failed.next_step


async def test_a_job_is_cancelled_by_its_own_server(store):
    service, work = JobService(store.jobs, 1), Work()
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        cancelled = await in_time(service.cancel(view.job_id))
        assert cancelled.status == "cancelled"
        assert "compile_and_verify(" in cancelled.next_step
        assert work.cancelled
        again = await service.cancel(view.job_id)
        assert again.status == "cancelled"
        assert "Nothing to cancel" in again.summary


async def test_work_hears_that_it_was_cancelled_and_not_of_the_end_of_its_server(store):
    heard = []

    async def ended(cancelled):
        heard.append(cancelled)
        return ("It is put back.", "Ask for it.") if cancelled else None

    service = JobService(store.jobs, 2)
    async with service.running():
        one, two = [await service.run(CALL, Work(), wait_s=0, notify=Heard(), ended=ended) for _ in range(2)]
        cancelled = await in_time(service.cancel(one.job_id))
        assert cancelled.summary.endswith("s. It is put back.")
        assert cancelled.next_step == "Ask for it."
        assert heard == [True]
    assert heard == [True, False]
    assert (await store.jobs.get(two.job_id)).status == "interrupted"


async def test_a_job_is_followed_and_cancelled_by_another_server(store, other, monkeypatch):
    service, work, remote = JobService(store.jobs, 1), Work(), JobService(other.jobs, 1)
    # In this test both servers are one process; to the other one this owner is a stranger that lives.
    monkeypatch.setattr(module, "is_gone", lambda job: False)
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        await in_time(work.begun.wait())
        work.report("running")
        with monkeypatch.context() as patch:
            patch.setattr(module, "this_process", lambda: Owner("other", 1, 1))
            heard = Heard()
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: remote.status(view.job_id, wait_s=60, notify=heard))
                await heard.until("running")
                group.cancel_scope.cancel()
            assert (await remote.recent()).jobs[0].status == "running"
        with anyio.fail_after(20):
            await other.jobs.request_cancel(view.job_id)
            await work.ended.wait()
        assert (await until_status(service, view.job_id, "cancelled")).status == "cancelled"
        assert (await remote.status(view.job_id, wait_s=10, notify=Heard())).status == "cancelled"


async def test_a_job_whose_owner_is_gone_is_interrupted_and_says_how_to_ask_again(store):
    gone = Owner(this_process().host, 2**22 + 1, 1)
    await store.jobs.start(
        JobRecord(
            "job_gone",
            tool="compile_and_verify",
            arguments={"task_id": "task_1", "target": "sm_80", "node_id": "cand_1"},
            owner=gone,
            created_at=time.time(),
            heartbeat_at=time.time(),
        )
    )
    service = JobService(store.jobs, 1)
    view = await in_time(service.status("job_gone", wait_s=30, notify=Heard()))
    assert view.status == "interrupted"
    assert 'compile_and_verify(task_id="task_1", target="sm_80", node_id="cand_1")' in view.next_step
    assert (await service.recent()).jobs[0].status == "interrupted"


async def test_a_process_with_the_pid_of_the_owner_is_not_the_owner(store):
    ours = this_process()
    await store.jobs.start(
        JobRecord(
            "job_old",
            tool="t",
            arguments={},
            owner=Owner(ours.host, ours.pid, ours.started - 1),
            created_at=0,
            heartbeat_at=time.time(),
        )
    )
    assert (
        await JobService(store.jobs, 1).status("job_old", wait_s=0, notify=Heard())
    ).status == "interrupted"


@pytest.mark.parametrize(("age_s", "status"), [(5, "running"), (60, "interrupted")])
async def test_an_owner_that_cannot_be_seen_is_judged_by_its_heartbeat(store, age_s, status):
    await store.jobs.start(
        JobRecord(
            "job_far",
            tool="t",
            arguments={},
            owner=Owner("another machine", 1, 1),
            created_at=0,
            heartbeat_at=time.time() - age_s,
        )
    )
    assert (await JobService(store.jobs, 1).status("job_far", wait_s=0, notify=Heard())).status == status


async def test_leaving_the_service_interrupts_its_jobs_and_ends_their_work(store):
    service, work, short = JobService(store.jobs, 2), Work(), Work()
    with anyio.fail_after(20):
        async with service.running(), anyio.create_task_group() as group:
            view = await service.run(CALL, work, wait_s=0, notify=Heard())
            group.start_soon(lambda: service.run(CALL, short, wait_s=60, notify=Heard()))
            await short.begun.wait()
            group.cancel_scope.cancel()
    assert work.cancelled
    assert short.cancelled
    assert (await store.jobs.get(view.job_id)).status == "interrupted"


async def test_the_place_in_the_queue_is_told(store):
    service, works, heard = JobService(store.jobs, 1), [Work() for _ in range(3)], Heard()
    async with service.running():
        views = [await service.run(CALL, work, wait_s=0, notify=Heard()) for work in works[:2]]
        assert isinstance(views[1], JobView)

        async def free():
            await heard.until("queued behind 2")
            works[0].gate.set()
            await heard.until("queued behind 1")
            works[1].gate.set()
            await works[2].begun.wait()
            works[2].gate.set()

        async with anyio.create_task_group() as group:
            group.start_soon(free)
            assert await in_time(service.run(CALL, works[2], wait_s=60, notify=heard)) == RIGHT


async def test_a_job_that_waits_can_be_cancelled(store):
    service, first, second = JobService(store.jobs, 1), Work(), Work()
    async with service.running():
        await service.run(CALL, first, wait_s=0, notify=Heard())
        view = await service.run(CALL, second, wait_s=0, notify=Heard())
        assert (await in_time(service.cancel(view.job_id))).status == "cancelled"
        assert not second.begun.is_set()


@pytest.mark.parametrize("job_id", ["", "job_nothing", "a\0b", "x" * 5000])
async def test_an_unknown_job_is_named_in_short(store, job_id):
    service = JobService(store.jobs, 1)
    for ask in (lambda: service.status(job_id, wait_s=5, notify=Heard()), lambda: service.cancel(job_id)):
        with pytest.raises(NotFoundError, match="There is no job") as caught:
            await ask()
        assert len(str(caught.value)) < 300


async def test_the_nearest_job_is_offered(store):
    service, work = JobService(store.jobs, 1), Work()
    async with service.running():
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        with pytest.raises(NotFoundError, match=view.job_id):
            await service.status(view.job_id[:-1], wait_s=0, notify=Heard())


async def test_one_service_serves_one_connection_at_a_time(store):
    service = JobService(store.jobs, 1)
    async with service.running():
        with pytest.raises(RuntimeError, match="runs already"):
            async with service.running():
                pass
    async with service.running():
        pass


async def test_the_list_of_jobs_holds_no_results(store):
    service, work = JobService(store.jobs, 1), Work()
    async with service.running():
        assert (await service.recent()).summary == "There are no jobs."
        view = await service.run(CALL, work, wait_s=0, notify=Heard())
        assert (await service.recent()).jobs[0].status == "running"
        work.gate.set()
        await in_time(service.status(view.job_id, wait_s=10, notify=Heard()))
        page = await service.recent()
    assert page.jobs[0].status == "done"
    assert page.jobs[0].result == {}
