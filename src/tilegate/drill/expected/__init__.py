"""Every probe, with what is expected of it at each level and why. Data: nothing here does anything."""

from tilegate.drill.expected.credentials import CREDENTIALS
from tilegate.drill.expected.files import FILES
from tilegate.drill.expected.kernel import KERNEL
from tilegate.drill.expected.network import NETWORK
from tilegate.drill.expected.privileges import PRIVILEGES
from tilegate.drill.expected.processes import PROCESSES
from tilegate.drill.expected.resources import RESOURCES
from tilegate.drill.expected.results import RESULTS
from tilegate.drill.probe import Probe

PROBES: tuple[Probe, ...] = (
    *CREDENTIALS,
    *FILES,
    *NETWORK,
    *PROCESSES,
    *KERNEL,
    *PRIVILEGES,
    *RESOURCES,
    *RESULTS,
)
