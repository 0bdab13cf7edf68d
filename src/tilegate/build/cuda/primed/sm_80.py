"""Begins to precompile the headers for sm_80."""

from tilegate.build.cuda.nvrtc import prime

prime("sm_80")
