"""The crash laboratory: breaks a durable workload in every way it knows and counts the promises that did not hold.

It knows nothing of any store: a `Workload` says how to make, use and check one.
"""

from holdfast.testing.crashlab.images import power_loss, power_loss_after_failed_sync
from holdfast.testing.crashlab.server import ForkServer, Outcome, scratch
from holdfast.testing.crashlab.shim import Fault, LabError, available
from holdfast.testing.crashlab.syscalls import errno_everywhere, kill_everywhere, strace_available, strace_everywhere
from holdfast.testing.crashlab.workload import Available, Report, Verdict, Violation, Workload, table

__all__ = [
    "Available",
    "Fault",
    "ForkServer",
    "LabError",
    "Outcome",
    "Report",
    "Verdict",
    "Violation",
    "Workload",
    "available",
    "errno_everywhere",
    "kill_everywhere",
    "power_loss",
    "power_loss_after_failed_sync",
    "scratch",
    "strace_available",
    "strace_everywhere",
    "table",
]
