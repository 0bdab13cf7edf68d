"""Begins to precompile the headers for sm_100a."""

from tilegate.build.cuda.nvrtc import prime

prime("sm_100a")
