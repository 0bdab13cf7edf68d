"""Begins to precompile the headers for sm_89."""

from tilegate.build.cuda.nvrtc import prime

prime("sm_89")
