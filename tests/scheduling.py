"""How a parallel run of pytest shares out the tests: by files, and all that drive `make run` to one process."""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

END_TO_END = "tests/e2e/"


class Scheduling(LoadFileScheduling):
    """Files stay whole. The end-to-end tests share one run of the service: each process that took some started one."""

    def _split_scope(self, nodeid: str) -> str:
        return END_TO_END if nodeid.startswith(END_TO_END) else super()._split_scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process its next file when it has one test left, which it runs once it knows what follows."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Let a file with a single test be followed by the last of the queue, which is short.

        It may take minutes, during which another process could do a long one.
        """
        files = list(self.assigned_work[node].values())
        if files and list(files[-1].values()) == [False]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
