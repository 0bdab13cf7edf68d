"""Begins to precompile the headers for sm_120a."""

from tilegate.build.cuda.nvrtc import prime

prime("sm_120a")
