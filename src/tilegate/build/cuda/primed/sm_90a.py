"""Begins to precompile the headers for sm_90a."""

from tilegate.build.cuda.nvrtc import prime

prime("sm_90a")
