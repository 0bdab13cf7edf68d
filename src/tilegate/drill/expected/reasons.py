"""Reasons that many probes share."""

from tilegate.drill.probe import blocked, depends, escapes, not_made, split

# full
ABSENT = blocked("it is not in the job's file system")
READ_ONLY = blocked("what the job sees of the host is mounted read-only, and Landlock lets it be read only")
OWN_PIDS = blocked("the job has numbers of its own for processes, and sees no others")
# full and reduced
CLEAN = blocked("nothing of the caller's environment or descriptors is handed on")
FILTERED = blocked("the filter of system calls leaves it out")
FILTERED_ARGUMENT = blocked("the filter of system calls looks at its arguments")
UNPRIVILEGED = blocked("the job's user has no capability, and none can be got")
# reduced
LANDLOCK = blocked("Landlock opens only what the job needs")
OTHER_USER = blocked("the job has a user of its own")
# none
SAME_USER = escapes("it is a process of the same user")
OPEN = escapes("files are the caller's")
AS_CALLER = split(root=escapes("the job is root"), user=blocked("the caller may not either"))
AS_MACHINE = split(
    root=depends("root may, unless the machine is locked"), user=depends("as the machine is set")
)
UNFILTERED = escapes("system calls are not filtered")
HARMFUL = not_made("granted, it would change the machine")
EVERYWHERE = blocked("limits are in force at every level")
