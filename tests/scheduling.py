"""How a parallel run of pytest shares out the tests: by files, and all that drive `make run` to one process."""

from xdist.scheduler import LoadFileScheduling

END_TO_END = "tests/e2e/"


class Scheduling(LoadFileScheduling):
    """Files stay whole. The end-to-end tests share one run of the service: each process that took some started one."""

    def _split_scope(self, nodeid: str) -> str:
        return END_TO_END if nodeid.startswith(END_TO_END) else super()._split_scope(nodeid)
