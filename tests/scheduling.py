"""Distributes the tests of a parallel run: each file to one process, and all end-to-end tests to the same process."""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

END_TO_END = "tests/e2e/"


class Scheduling(LoadFileScheduling):
    """Keeps each file in one process, and all end-to-end tests in the same process.

    Each process that runs end-to-end tests has to start the service first.
    """

    def _split_scope(self, nodeid: str) -> str:
        return END_TO_END if nodeid.startswith(END_TO_END) else super()._split_scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Assign the next file when a process has one test left. It runs that test only when it knows the next one."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the next file. After a file with a single test, assign the last file of the queue, which is short.

        That single test may take minutes. Meanwhile, another process can begin the next long file.
        """
        files = list(self.assigned_work[node].values())
        if files and list(files[-1].values()) == [False]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
