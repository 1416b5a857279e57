"""The exceptions that a package may raise to its caller; a bad kernel is none of them, it is an outcome.

What a package raises and catches inside (a bad frame, a session that ended, a task's fault) is defined where it is used.

AdaExploreError
├── RequestError            the caller can fix it: becomes the text of a ToolError
│   ├── NotFoundError       an id or a name that does not exist
│   └── TaskError           the reference, not a candidate, is at fault
├── StoreError              the database cannot be used as it is
└── WorkerError             a worker process of ours failed; the candidate is not to blame
    └── WorkerLostError     it ended, or stopped answering, before its reply
"""


class AdaExploreError(Exception):
    """Base of all errors raised on purpose."""


class RequestError(AdaExploreError):
    """The request cannot be served as it stands.

    Args:
        problem: What is wrong, with the offending value.
        next_step: The call or the change that helps.
    """

    def __init__(self, problem: str, next_step: str = "") -> None:
        self.problem = problem
        self.next_step = next_step
        super().__init__(f"{problem} {next_step}".strip())


class NotFoundError(RequestError):
    """An id or a name does not exist."""


class TaskError(RequestError):
    """What was registered is not a task: the reference is at fault."""


class StoreError(AdaExploreError):
    """The database cannot be opened or is not ours to use."""


class WorkerError(AdaExploreError):
    """A worker process of ours failed; no candidate is blamed for it."""


class WorkerLostError(WorkerError):
    """A worker ended or stopped answering before it replied."""
