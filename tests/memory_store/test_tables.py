import time

import pytest

from adaexplore_mcp.errors import StoreError
from adaexplore_mcp.memory_store import JobRecord, Owner, Store, TaskRecord, candidate_id_of
from adaexplore_mcp.models import Evidence, Outcome, Profile, TaskSummary

pytestmark = pytest.mark.anyio

OWNER = Owner("here", 4711, 99)


@pytest.fixture
async def store(home):
    store = Store(home / "adaexplore.db")
    yield store
    await store.aclose()


def task(number, name="softmax", **fields):
    summary = TaskSummary(task_id=f"task_{number}", name=name, format="function", entry="f", **fields)
    return TaskRecord(summary.task_id, {"source": "é\0", "number": number}, summary)


def job(job_id="job_a", **fields):
    now = time.time()
    values = {"tool": "compile_and_verify", "arguments": {"task_id": "task_1"}, "owner": OWNER}
    return JobRecord(job_id, **{**values, "created_at": now, "heartbeat_at": now, **fields})


async def test_a_task_comes_back_as_it_was_put(store):
    assert await store.tasks.put(task(1, description="rows"))
    kept = await store.tasks.get("task_1")
    assert kept.content == {"source": "é\0", "number": 1}
    assert kept.summary == task(1, description="rows").summary
    assert kept.created_at > 0
    assert await store.tasks.get("task_2") is None


async def test_a_task_put_again_has_its_new_name_and_plans(store):
    await store.tasks.put(task(1))
    changed = TaskRecord("task_1", {"plan_version": 2}, task(1, name="renamed").summary)
    assert not await store.tasks.put(changed)
    kept = await store.tasks.get("task_1")
    assert kept.content == {"plan_version": 2}
    assert kept.summary.name == "renamed"
    assert list(await store.tasks.names()) == [("task_1", "renamed")]
    assert [record.task_id for record in (await store.tasks.list(query="renamed"))[0]] == ["task_1"]


async def test_tasks_are_listed_latest_first_page_by_page(store):
    for number in range(5):
        await store.tasks.put(task(number))
    page, more = await store.tasks.list(limit=2)
    assert [record.task_id for record in page] == ["task_4", "task_3"]
    assert more
    page, more = await store.tasks.list(limit=3, after="task_3")
    assert [record.task_id for record in page] == ["task_2", "task_1", "task_0"]
    assert not more


@pytest.mark.parametrize(
    ("query", "found"), [("SOFT rows", 1), ("norm", 1), ("task_", 2), ("soft norm", 0), ("%", 0)]
)
async def test_every_word_of_a_query_must_occur(store, query, found):
    await store.tasks.put(task(1, description="Rows of it"))
    await store.tasks.put(task(2, name="rmsnorm"))
    assert len((await store.tasks.list(query))[0]) == found


async def test_a_row_of_a_newer_server_is_read_without_what_it_added(store):
    await store.tasks.put(task(1))
    await store._database.write(
        lambda sqlite: sqlite.execute("UPDATE tasks SET summary = json_set(summary, '$.invented', 1)")
    )
    assert (await store.tasks.get("task_1")).summary.name == "softmax"


async def test_an_outcome_is_kept_with_candidate_receipt_and_artifacts(store):
    await store.tasks.put(task(1))
    source = b"# latin-1: \xe9\0"
    outcome = await store.evaluations.record(
        Outcome(summary="Wrong.", status="incorrect", task_id="task_1", evidence=Evidence(got=1.5)),
        source,
        receipt={"seed": 3},
        texts=[("log", "a\0b\ud800"), ("ptx", "")],
        agent="tester",
        elapsed_s=0.5,
    )
    assert await store.evaluations.candidate(outcome.candidate_id) == source
    receipt = await store.evaluations.tell_receipt(outcome.receipt_id)
    assert receipt.receipt == {"seed": 3}
    assert receipt.outcome == outcome
    log, ptx = outcome.artifacts
    assert (log.kind, log.size, ptx.size) == ("log", 4, 0)
    assert (await store.evaluations.artifact(log.artifact_id)).text == "a\0b?"
    assert await store.evaluations.outcomes("task_1") == [outcome]
    assert await store.evaluations.outcomes("task_1", outcome.candidate_id) == [outcome]
    assert await store.evaluations.outcomes("task_1", "cand_other") == []


async def test_trials_are_known_to_every_server_once_a_receipt_with_their_seeds_was_read(store):
    await store.tasks.put(task(1))
    outcome = Outcome(summary="Right.", status="correct", task_id="task_1")
    receipt = {"workloads": {"default": {"trials": "one"}, "wide": {"trials": "two"}, "old": {}}}
    kept = await store.evaluations.record(outcome, b"x", receipt=receipt)
    assert await store.evaluations.told_since(0) == ([], 0)
    for _ in range(2):
        await store.evaluations.tell_receipt(kept.receipt_id)
    told, number = await store.evaluations.told_since(0)
    assert told == ["one", "two"]
    assert await store.evaluations.told_since(number) == ([], number)


async def test_one_candidate_is_kept_once_however_often_it_is_judged(store):
    await store.tasks.put(task(1))
    outcome = Outcome(summary="Right.", status="correct", task_id="task_1")
    first = await store.evaluations.record(outcome, b"x", receipt={})
    second = await store.evaluations.record(outcome, b"x", receipt={})
    assert first.candidate_id == second.candidate_id
    assert first.receipt_id != second.receipt_id
    assert await store.evaluations.ids("candidate") == [first.candidate_id]


async def test_an_outcome_of_an_unknown_task_is_refused_and_leaves_nothing(store):
    outcome = Outcome(summary="Right.", status="correct", task_id="task_unknown")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        await store.evaluations.record(outcome, b"x", receipt={})
    assert await store.evaluations.ids("candidate") == []


async def test_unknown_ids_give_none_whatever_they_hold(store):
    for odd in ("", "../../etc/passwd", "a\0b", "x" * 5000, "' OR 1=1 --", "%"):
        assert await store.evaluations.candidate(odd) is None
        assert await store.evaluations.artifact(odd) is None
        assert await store.evaluations.tell_receipt(odd) is None
        assert await store.tasks.get(odd) is None
        assert await store.jobs.get(odd) is None


async def test_a_job_is_kept_with_its_candidate(store):
    await store.jobs.start(job(stage="running", progress=1.5), candidate=b"source")
    kept = await store.jobs.get("job_a")
    assert (kept.status, kept.stage, kept.progress, kept.owner) == ("running", "running", 1.5, OWNER)
    assert kept.arguments == {"task_id": "task_1"}
    assert len(await store.evaluations.ids("candidate")) == 1


async def test_a_heartbeat_renews_stage_and_time_of_running_jobs_only(store):
    await store.jobs.start(job("job_a", heartbeat_at=1.0))
    await store.jobs.start(job("job_b", heartbeat_at=1.0))
    await store.jobs.finish("job_b", "done", result={"summary": "Right."})
    await store.jobs.beat({"job_a": ("compiling", 7.0), "job_b": ("compiling", 7.0)})
    a, b = await store.jobs.get("job_a"), await store.jobs.get("job_b")
    assert (a.stage, a.progress) == ("compiling", 7.0)
    assert a.heartbeat_at > 1.0
    assert b.heartbeat_at == 1.0
    assert b.result == {"summary": "Right."}


async def test_a_job_ends_once(store):
    await store.jobs.start(job())
    await store.jobs.finish("job_a", "failed", problem="p", next_step="n")
    await store.jobs.finish("job_a", "done", result={"x": 1})
    await store.jobs.interrupt("job_a")
    kept = await store.jobs.get("job_a")
    assert (kept.status, kept.problem, kept.next_step, kept.result) == ("failed", "p", "n", {})
    assert kept.finished_at is not None


async def test_a_request_to_cancel_reaches_the_owner_of_the_job_only(store):
    await store.jobs.start(job("job_a"))
    await store.jobs.start(job("job_b", owner=Owner("there", 4711, 99)))
    await store.jobs.start(job("job_c"))
    for job_id in ("job_a", "job_b", "job_c"):
        await store.jobs.request_cancel(job_id)
    await store.jobs.finish("job_c", "done")
    assert await store.jobs.cancel_requests(OWNER) == {"job_a"}


async def test_an_interrupted_job_ended_at_its_last_heartbeat(store):
    await store.jobs.start(job(heartbeat_at=123.0))
    await store.jobs.interrupt("job_a")
    kept = await store.jobs.get("job_a")
    assert (kept.status, kept.finished_at) == ("interrupted", 123.0)


async def test_jobs_are_listed_latest_first(store):
    for job_id in ("job_a", "job_b", "job_c"):
        await store.jobs.start(job(job_id))
    assert [one.job_id for one in await store.jobs.recent(2)] == ["job_c", "job_b"]
    assert await store.jobs.ids() == ["job_c", "job_b", "job_a"]


async def test_what_a_profiler_said_is_kept_beside_the_candidate(store):
    await store.tasks.put(task(1))
    profile = Profile(summary="Most likely: x.", task_id="task_1")
    kept = await store.evaluations.keep_profile(profile, b"source", [("counters", "a,\ud800b")])
    (artifact,) = kept.artifacts
    assert (artifact.kind, artifact.size) == ("counters", 4)
    assert (await store.evaluations.artifact(artifact.artifact_id)).text == "a,?b"
    bare = await store.evaluations.keep_profile(profile, b"other", [])
    assert bare.artifacts == []
    assert await store.evaluations.candidate(candidate_id_of(b"other")) == b"other"
